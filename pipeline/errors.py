"""The errors a user can cause or mend; the command line prints them as one line."""


class UserError(Exception):
    """Something the user can put right: the message names the place, what was found, what to do.

    The command line prints the message without a traceback and exits with `exit_code`.
    """

    exit_code = 2


class Interrupted(Exception):
    """A stage was asked to stop (SIGINT, SIGTERM) and did: finished work is kept.

    The command line exits with `exit_code`, 128 plus the signal's number as a shell expects.
    """

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signal_number


class DamagedData(Exception):
    """A stage met damaged stored rows and set them aside; they are owed again."""
