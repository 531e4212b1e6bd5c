/* Keeps the process alive when a file is cut short that is mapped into it.
 *
 * Whoever touches a page of a mapped file that is no longer there gets SIGBUS. For the files that
 * were named by `protect` the signal is answered here: the file is made as long as it was, with its
 * header, and where that cannot be (a disk that fails or is full, a file that was removed) memory
 * takes its place, of which nothing is on record. Whatever else SIGBUS says goes to who had it.
 *
 * Rules of this file: the handler calls nothing but the kernel, takes no lock and no memory. All
 * else runs under the interpreter lock, as do those who write to the files. The handler is there
 * while there is a file to protect.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_FILES 64

/* What is known of one mapping; free where `size` is 0. */
typedef struct {
    uintptr_t begin;
    size_t size;
    char *path;
    char *header;
    size_t header_size;
    dev_t device;
    ino_t inode;
    int made_whole; /* how often */
    int is_lost;    /* memory is in the file's place */
} Protected;

static Protected files[MOST_FILES];
static int protected_count;
static struct sigaction before;
static int is_handling;

/* Makes the file as long as it was; 0 where it is not the length that is wrong, or it fails. */
static int make_whole(Protected *file)
{
    struct stat now;
    if (lstat(file->path, &now) != 0 || now.st_dev != file->device || now.st_ino != file->inode
        || (size_t)now.st_size >= file->size || chmod(file->path, 0600) != 0)
        return 0;
    int fd = open(file->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int is_done = fd >= 0 && fstat(fd, &now) == 0 && now.st_ino == file->inode
        && fallocate(fd, 0, 0, (off_t)file->size) == 0
        && ((size_t)now.st_size >= file->header_size
            || pwrite(fd, file->header, file->header_size, 0) == (ssize_t)file->header_size);
    if (fd >= 0) {
        fchmod(fd, 0400);
        close(fd);
    }
    return is_done;
}

/* Has the address be there again; 0 where it is of no file of ours. */
static int mend(uintptr_t address)
{
    for (int i = 0; i < MOST_FILES; i++) {
        Protected *file = &files[i];
        if (file->size == 0 || address - file->begin >= file->size)
            continue;
        if (!file->is_lost && make_whole(file)) {
            file->made_whole++;
            return 1;
        }
        file->is_lost = 1;
        return mmap((void *)file->begin, file->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    if (info->si_code > 0 && mend((uintptr_t)info->si_addr)) {
        errno = kept;
        return; /* what was under way is tried again */
    }
    errno = kept;
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (before.sa_handler == SIG_DFL || info->si_code > 0) {
        sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0)
            raise(SIGBUS); /* somebody sent it; a fault comes again by itself */
    }
}

/* Answers the signal from now on, before all who do so already. */
static int begin_handling(void)
{
    struct sigaction action;
    if (is_handling)
        return 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus_error;
    if (sigaction(SIGBUS, NULL, &before) != 0)
        return -1;
    action.sa_mask = before.sa_mask;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    if (sigaction(SIGBUS, &action, NULL) != 0)
        return -1;
    is_handling = 1;
    return 0;
}

/* Gives it back, unless somebody answers it before us by now, who may count on us. */
static void end_handling(void)
{
    struct sigaction now;
    if (is_handling && sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO)
        && now.sa_sigaction == on_bus_error) {
        sigaction(SIGBUS, &before, NULL);
        is_handling = 0;
    }
}

static Protected *find_file(uintptr_t begin)
{
    for (int i = 0; i < MOST_FILES; i++)
        if (files[i].size != 0 && files[i].begin == begin)
            return &files[i];
    return NULL;
}

static Protected *find_room(void)
{
    for (int i = 0; i < MOST_FILES; i++)
        if (files[i].size == 0)
            return &files[i];
    return NULL;
}

const char protect_doc[] =
    "protect($module, address, size, path, header, /)\n--\n\n"
    "Keep the process alive when a file is cut short that is mapped there.\n\n"
    "Raises:\n    OSError: It cannot be protected.";

PyObject *protect(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size, path_size, header_size;
    const char *path, *header;
    if (!PyArg_ParseTuple(args, "Kny#y#", &address, &size, &path, &path_size, &header,
                          &header_size))
        return NULL;
    Protected *file = find_room();
    struct stat now;
    if (file == NULL || size <= 0) {
        errno = ENOSPC;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    if (lstat(path, &now) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    char *kept_path = PyMem_RawMalloc((size_t)path_size + 1);
    char *kept_header = PyMem_RawMalloc((size_t)header_size + 1);
    if (kept_path == NULL || kept_header == NULL) {
        PyMem_RawFree(kept_path);
        PyMem_RawFree(kept_header);
        return PyErr_NoMemory();
    }
    memcpy(kept_path, path, (size_t)path_size + 1);
    memcpy(kept_header, header, (size_t)header_size);
    *file = (Protected){.begin = (uintptr_t)address, .path = kept_path, .header = kept_header,
                        .header_size = (size_t)header_size, .device = now.st_dev,
                        .inode = now.st_ino};
    file->size = (size_t)size;
    protected_count++;
    if (begin_handling() != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        file->size = 0;
        protected_count--;
        return NULL;
    }
    Py_RETURN_NONE;
}

const char unprotect_doc[] =
    "unprotect($module, address, /)\n--\n\nThe file is about to be unmapped.";

PyObject *unprotect(PyObject *Py_UNUSED(module), PyObject *address)
{
    uintptr_t begin = (uintptr_t)PyLong_AsUnsignedLongLong(address);
    Protected *file = PyErr_Occurred() ? NULL : find_file(begin);
    if (PyErr_Occurred())
        return NULL;
    if (file != NULL) {
        file->size = 0;
        PyMem_RawFree(file->path);
        PyMem_RawFree(file->header);
        if (--protected_count == 0)
            end_handling();
    }
    Py_RETURN_NONE;
}

const char cuts_doc[] =
    "cuts($module, address, /)\n--\n\n"
    "How often the file was made whole again, and whether memory is in its place.";

PyObject *cuts(PyObject *Py_UNUSED(module), PyObject *address)
{
    uintptr_t begin = (uintptr_t)PyLong_AsUnsignedLongLong(address);
    if (PyErr_Occurred())
        return NULL;
    Protected *file = find_file(begin);
    int made_whole = file == NULL ? 0 : file->made_whole;
    return Py_BuildValue("iO", made_whole, file != NULL && file->is_lost ? Py_True : Py_False);
}

const char stand_aside_doc[] =
    "stand_aside($module, /)\n--\n\n"
    "Let who handled SIGBUS before do so alone, until `stand_before`.";

PyObject *stand_aside(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    end_handling();
    Py_RETURN_NONE;
}

const char stand_before_doc[] =
    "stand_before($module, /)\n--\n\nHandle SIGBUS before all others, if there is a file for it.";

PyObject *stand_before(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (protected_count > 0 && begin_handling() != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}
