"""Programs that want users of their own, started where these exist: in a mount and process namespace of theirs.

What the machine has of the same name (a Postfix or Dovecot that is installed) is neither seen nor touched, and when the
process that started them ends, however it ends, the kernel ends all of them.
"""

import os
import signal

import sluice

NOBODY = {"root": (0, 0), "nobody": (65534, 65534)}


def account_files(directory, users, groups=None):
    """Write DIRECTORY/passwd and DIRECTORY/group: root, nobody, and `users`, name -> (uid, gid), each with a group of the
    same name; `groups`, name -> gid, are more groups."""
    users = dict(NOBODY, **users)
    with open(os.path.join(directory, "passwd"), "w") as f:
        f.writelines("%s:x:%d:%d::/:/bin/false\n" % (name, uid, gid) for name, (uid, gid) in users.items())
    with open(os.path.join(directory, "group"), "w") as f:
        f.writelines("%s:x:%d:\n" % (name, gid) for name, (_, gid) in users.items())
        f.writelines("%s:x:%d:\n" % item for item in (groups or {}).items())


def spawn(directory, argv, mounts="true", **options):
    """Start a program for which DIRECTORY's account files are those in /etc. `mounts` is a shell command that mounts
    more. The shell stays as the namespace's first process: what it leaves behind ends with it."""
    script = ("%s && mount --bind %s/passwd /etc/passwd && mount --bind %s/group /etc/group && { \"$@\" & wait $!; }"
              % (mounts, directory, directory))
    return sluice.spawn(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *argv],
                        start_new_session=True, **options)


def end(process):
    """Kill all that spawn() has started in a namespace, and return when it is gone, with its locks and ports. The namespace's
    first process is waited for by unshare(1), and is the last one of it to end."""
    with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as f:
        children = [int(pid) for pid in f.read().split()]
    for pid in children or [process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def contains(process, pid):
    """Is `pid` in the namespace of a process that spawn() started?"""
    try:
        return os.stat("/proc/%d/ns/pid" % pid).st_ino == os.stat("/proc/%d/ns/pid_for_children" % process.pid).st_ino
    except OSError:
        return False
