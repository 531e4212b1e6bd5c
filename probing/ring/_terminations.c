/* Who asked the process to end: each SIGTERM is written down, and then does what it does.
 *
 * By default a SIGTERM ends a process without Python's knowledge, as SIGKILL does; but it is what
 * schedulers, containers and people send, and no crash. A handler of the program's own may take too
 * long, so that SIGKILL follows.
 *
 * Rules of this file: the handler asks the kernel and copies text; it takes no lock and no memory.
 * It stands before the default and before Python's own handler, neither of which calls another; all
 * others, and a signal that is ignored, are left alone. In a process that was forked since it
 * writes nothing.
 */

#include "_native.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define MAX_NAME 16 /* and a newline is among them */

static char *noted_path;
static pid_t noted_by;
static struct sigaction before;

/* The digits of a number, which end at the end of some room; returns where they begin. */
static char *digits_of(unsigned number, char *end)
{
    *--end = '\0';
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    return end;
}

/* Whether /proc tells of the processes that this one's pids mean. */
static int is_own_proc(void)
{
    char self[12], digits[12];
    ssize_t length = readlink("/proc/self", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return strcmp(self, digits_of((unsigned)noted_by, digits + sizeof digits)) == 0;
}

/* Copies the name of a process, as its `comm` has it, with ? for what is not printable ASCII. */
static int name_of(const char *pid, char *text)
{
    char path[32] = "/proc/";
    if (!is_own_proc())
        return 0;
    strcat(strcat(path, pid), "/comm");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int length = (int)read(fd, text, MAX_NAME);
    close(fd);
    if (length > 0 && text[length - 1] == '\n')
        length--;
    for (int i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            text[i] = '?';
    return length > 0 ? length : 0;
}

/* Writes `SENDER d NAME` where the default follows, else `SENDER h NAME`; it is 0 if unknown, and
 * then without a name, as where that cannot be read any more. */
static void note(const siginfo_t *info)
{
    char text[12 + MAX_NAME + 4], digits[12];
    const char *path = noted_path;
    if (path == NULL || getpid() != noted_by)
        return;
    unsigned sender = info->si_code <= 0 && info->si_pid > 0 ? (unsigned)info->si_pid : 0;
    const char *pid = digits_of(sender, digits + sizeof digits);
    int length = (int)strlen(strcpy(text, pid));
    text[length++] = ' ';
    text[length++] = before.sa_handler == SIG_DFL ? 'd' : 'h';
    int named = sender > 0 ? name_of(pid, text + length + 1) : 0;
    if (named > 0) {
        text[length] = ' ';
        length += 1 + named;
    }
    text[length++] = '\n';
    leave_word(path, O_TRUNC, text, (size_t)length);
}

static void on_terminate(int number, siginfo_t *info, void *Py_UNUSED(context))
{
    int kept = errno;
    note(info);
    if (before.sa_handler != SIG_DFL)
        before.sa_handler(number);
    else {
        /* Sent anew it comes as soon as this returns, and ends the process; but for the first one
         * of a container, which goes on as it would have without us. */
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigemptyset(&plain.sa_mask);
        sigaction(SIGTERM, &plain, NULL);
        raise(SIGTERM);
    }
    errno = kept;
}

static int is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_terminate;
}

/* Whether it is the default, or what Python itself has put there for a handler in Python. */
static int may_be_covered(const struct sigaction *action, int is_pythons)
{
    Dl_info python, found;
    if (action->sa_flags & (SA_SIGINFO | SA_NODEFER | (int)SA_RESETHAND))
        return 0;
    if (action->sa_handler == SIG_DFL)
        return 1;
    return is_pythons && action->sa_handler != SIG_IGN
        && dladdr((void *)PyOS_setsig, &python) != 0
        && dladdr((void *)action->sa_handler, &found) != 0 && python.dli_fbase == found.dli_fbase;
}

const char note_sigterm_doc[] =
    "note_sigterm($module, path, is_pythons, /)\n--\n\n"
    "Have each SIGTERM write who sent it to a file; returns whether it will.\n\n"
    "Args:\n    is_pythons: Whether a handler written in Python is in place.";

PyObject *note_sigterm(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *path;
    int is_pythons;
    struct sigaction now;
    if (!PyArg_ParseTuple(args, "Op", &path, &is_pythons))
        return NULL;
    char *copy = copy_of_path(path);
    if (copy == NULL)
        return NULL;
    if (noted_path != NULL && strcmp(noted_path, copy) == 0)
        PyMem_RawFree(copy);
    else
        noted_path = copy; /* the one before stays: a handler may be about to read it */
    noted_by = getpid();
    if (sigaction(SIGTERM, NULL, &now) != 0)
        Py_RETURN_FALSE;
    if (is_ours(&now))
        Py_RETURN_TRUE;
    if (!may_be_covered(&now, is_pythons))
        Py_RETURN_FALSE;
    struct sigaction ours = now;
    ours.sa_sigaction = on_terminate;
    ours.sa_flags |= SA_SIGINFO | SA_ONSTACK | (now.sa_handler == SIG_DFL ? SA_RESTART : 0);
    before = now;
    return PyBool_FromLong(sigaction(SIGTERM, &ours, NULL) == 0);
}

const char forget_sigterm_doc[] =
    "forget_sigterm($module, /)\n--\n\n"
    "Write nothing any more, and put back what was there, unless another came since.";

PyObject *forget_sigterm(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    struct sigaction now;
    noted_path = NULL;
    if (sigaction(SIGTERM, NULL, &now) == 0 && is_ours(&now))
        sigaction(SIGTERM, &before, NULL);
    Py_RETURN_NONE;
}
