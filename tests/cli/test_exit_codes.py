# SPDX-License-Identifier: Apache-2.0
from kvflags.errors import ErrorCode, KvflagsError, OperatorError, Unauthorized, Unavailable, UsageError
from kvflags_cli.exit_codes import BY_ERROR, MEANINGS, ExitCode, exit_code


def test_every_error_has_an_exit_code_and_every_exit_code_a_meaning():
    assert set(BY_ERROR) == set(ErrorCode)
    assert set(MEANINGS) == set(ExitCode)
    assert {int(code) for code in ExitCode} == {0, 1, 2, 3, 4, 5, 70, 130}


def test_the_code_of_an_error_decides():
    assert exit_code(UsageError("x")) == 2
    assert exit_code(Unauthorized("x")) == 4
    assert exit_code(Unavailable("x")) == 5
    assert exit_code(Unavailable("x", code=ErrorCode.DATABASE_BUSY)) == 5
    assert exit_code(OperatorError("x", code=ErrorCode.PORT_IN_USE)) == 2
    assert exit_code(KvflagsError("x")) == 70


def test_what_the_surroundings_lack_is_never_our_fault():
    assert exit_code(OperatorError("no such folder")) == 2
