"""What `probing.pyz` runs first: unpacks what fits this Python, once, and becomes the command line.

Rules of this file: the standard library alone, and no syntax that Python 3.6 cannot read, so that
an old one is told what it is too old for. Nothing outside of one folder of the user's is written.
"""

import json
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile

OLDEST = (3, 10)


def main():
    """Run the command line out of the unpacked files."""
    if sys.version_info < OLDEST:
        found = "{}.{}".format(*sys.version_info)
        sys.exit(
            "error: probing needs Python 3.10 or later; {} is {}.".format(sys.executable, found)
        )
    archive = os.path.dirname(os.path.abspath(__file__))
    try:
        folder, lacking = unpacked(archive)
    except OSError as error:
        sys.exit("error: cannot unpack {}: {}.".format(archive, error))
    sys.path.insert(0, folder)
    before = os.environ.get("PYTHONPATH")  # for the programs that commands start
    os.environ["PYTHONPATH"] = folder if not before else folder + os.pathsep + before
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = os.path.join(folder, "bin") + os.pathsep + path
    if lacking:
        from probing.errors import MissingLibrary

        MissingLibrary.made_for = made_for(lacking)
    from probing.__main__ import main as run

    run()


def unpacked(archive):
    """The folder with the files that fit this Python, and the parts that do not.

    Raises:
        OSError: They cannot be put anywhere.
    """
    with zipfile.ZipFile(archive) as opened:
        contents = json.loads(opened.read("contents.json").decode())
        fitting = [part for part in contents["parts"] if part in names()]
        missing = [part for part in contents["parts"] if part not in fitting]
        if missing:
            sys.stderr.write(
                "note: {} is for {}: under this Python `backtrace` works, and what needs SQL does"
                " not.\n".format(os.path.basename(archive), made_for(missing))
            )
        name = "-".join([contents["name"], contents["digest"], *fitting[-1:]])
        for home in homes():
            folder = os.path.join(home, name)
            if not is_private(home):
                continue
            if not os.path.isdir(folder):
                unpack(opened, fitting, folder)
            return folder, missing
    raise OSError("no folder of yours can be written to; set XDG_CACHE_HOME to one")


def made_for(parts):
    """The Python in words that the last of some parts fits, such as `cp311_linux_x86_64`."""
    tag, _, machine = parts[-1].partition("_")
    python = "Python {}.{}".format(tag[2:3], tag[3:])
    return python if machine == names()[1] else "{} on {}".format(python, machine)


def names():
    """What the parts are called that fit: plain Python, this machine's, this Python's."""
    machine = sysconfig.get_platform().replace("-", "_")
    tag = "cp{}{}".format(*sys.version_info)
    is_usual = sys.implementation.name == "cpython" and not sysconfig.get_config_var(
        "Py_GIL_DISABLED"
    )
    return ("any", machine, "{}_{}".format(tag, machine)) if is_usual else ("any", machine)


def homes():
    """Where to unpack, the best first."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield os.path.join(cache, "probing")
    yield os.path.join(tempfile.gettempdir(), "probing-{}".format(os.getuid()))


def is_private(home):
    """Whether a folder is there, or is made now, in which nobody else can put a file."""
    try:
        os.makedirs(os.path.dirname(home), exist_ok=True)
        try:
            os.mkdir(home, 0o700)
        except FileExistsError:
            pass
        found = os.lstat(home)
    except OSError:
        return False
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_own and not found.st_mode & 0o022 and os.access(home, os.W_OK | os.X_OK)


def unpack(opened, parts, folder):
    """Put the files of some parts into a folder, which is whole as soon as it is there."""
    sys.stderr.write("note: unpacking into {}, once.\n".format(folder))
    made = tempfile.mkdtemp(dir=os.path.dirname(folder))
    try:
        for info in opened.infolist():
            part, _, name = info.filename.partition("/")
            if part in parts and name:
                target = os.path.join(made, *name.split("/"))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with opened.open(info) as source, open(target, "wb") as file:
                    shutil.copyfileobj(source, file)
                os.chmod(target, (info.external_attr >> 16) & 0o755 | 0o600)
        try:
            os.rename(made, folder)
        except OSError:
            if not os.path.isdir(folder):  # else another one was quicker
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    main()
