/* The hot path of the recorder in C: one row of python.torch_trace per module call.
 *
 * Rules of this file: optional, with Python alone everything works as well, only slower. It stands
 * behind a Python function, as that function's vectorcall: torch.compile, inspect and other tools
 * see the Python function, whose code does the same and writes the same rows; what is run is this.
 * Whatever is rare (the call of a root, a module that is met for the first time, a step that is
 * timed on the device, a thread that is traced) is left to the Python function. It holds the interpreter lock from end to
 * end, keeps no reference longer than a call but those that `install` was given, and whatever goes
 * wrong in it, the user's module is called exactly once, and its result or exception passed on.
 */

#include "_native.h"

#define CACHED (1 << 12)

/* A module whose numbers are known: a copy of what is in `known`, until that changes. */
typedef struct {
    PyObject *module; /* compared only, never used */
    uint32_t epoch;
    uint8_t ids[IDS_SIZE];
    uint8_t is_recorded;
} Known;

Hot hot;

static struct {
    uint32_t epoch; /* entries are valid if they carry it */
    Known entries[CACHED];
} cache;

/* Raised with each recording, and with each state of a thread that is freed: what is kept of such
 * states is valid if it carries it. */
static uint64_t states;

static _Thread_local struct {
    uint64_t states;
    uint64_t state_id;
    Thread *thread;
} here;

static PyObject *name_call_impl, *name_compiled;
static PyTypeObject *moment_type, *rows_type, *batches_type, *optimizer_rows_type;
PyTypeObject *thread_type, *words_type, *phases_type;

/* Whether what is raised is meant for the program; -1 where that has failed, or was interrupted:
 * then what is raised now stands in the place of the other. */
static int is_for_program(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return 1;
    if (hot.is_programs == NULL)
        return 0;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    PyObject *is_programs = Py_NewRef(hot.is_programs);
    PyObject *answer = PyObject_CallOneArg(is_programs, value);
    Py_DECREF(is_programs);
    if (answer == NULL) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return -1;
    }
    int is_one = answer == Py_True;
    Py_DECREF(answer);
    PyErr_Restore(type, value, trace);
    return is_one;
}

/* Whether what is raised is no fault of ours but meant for the program: Ctrl-C, in most cases, or
 * what else a signal's handler has raised. One that comes while that is asked is asked for as well;
 * where the question fails twice, only what is no `Exception` is the program's. */
int is_interrupt(void)
{
    int is_one = is_for_program();
    if (is_one < 0)
        is_one = is_for_program();
    return is_one < 0 ? !PyErr_ExceptionMatches(PyExc_Exception) : is_one;
}

/* Calls into Python with the raised exception as the one in hand, as a handler would; the exception
 * is raised again if `again` is set, else dropped. What the call itself raises is dropped, but for
 * an interrupt, which is raised in the place of the other: then -1. */
int handle(PyObject *callable, PyObject *const *args, size_t count, int again)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL && value != NULL)
        PyException_SetTraceback(value, trace);
    /* In a place of its own, as a generator has one: what those around us have in hand stays in
     * theirs, and nothing of it comes into that of a generator which we run in. */
    PyThreadState *state = PyThreadState_Get();
    _PyErr_StackItem own = {.previous_item = state->exc_info};
    state->exc_info = &own;
    Py_XINCREF(type);
    Py_XINCREF(value);
    Py_XINCREF(trace);
    PyErr_SetExcInfo(type, value, trace);
    PyObject *done = PyObject_Vectorcall(callable, args, count, NULL);
    int interrupted = done == NULL && is_interrupt();
    if (done == NULL && !interrupted)
        PyErr_Clear();
    Py_XDECREF(done);
    PyErr_SetExcInfo(NULL, NULL, NULL);
    state->exc_info = own.previous_item;
    if (again && !interrupted) {
        PyErr_Restore(type, value, trace);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    }
    return interrupted ? -1 : 0;
}

/* Notes what is raised as a fault of our own; -1 where it is an interrupt, which stays raised. */
int note_fault_by(PyObject *fault)
{
    if (is_interrupt())
        return -1;
    if (!hot.is_installed || fault == NULL) {
        PyErr_Clear();
        return 0;
    }
    Py_INCREF(fault);
    int told = handle(fault, NULL, 0, 0);
    Py_DECREF(fault);
    return told;
}

static int note_fault(void)
{
    return note_fault_by(hot.fault);
}

/* What this thread is in the middle of, borrowed; NULL where that is for Python to find out, where
 * the recording has ended, or where an interrupt has come, which is raised then. Whoever runs
 * Python while he uses it holds a reference: the recording may end meanwhile, and it with that. */
static inline Thread *this_thread(PyThreadState *state)
{
    uint64_t id = PyThreadState_GetID(state);
    if (!hot.is_installed)
        return NULL;
    if (here.states == states && here.state_id == id)
        return here.thread;
    uint64_t installed = hot.installed;
    PyObject *state_of_thread = Py_NewRef(hot.state_of_thread);
    PyObject *found = PyObject_CallNoArgs(state_of_thread);
    Py_DECREF(state_of_thread);
    if (found == NULL) {
        if (!is_interrupt())
            PyErr_Clear();
        return NULL;
    }
    /* The thread's own dictionary keeps it; one that nobody keeps is no longer valid here. */
    int is_one = PyObject_TypeCheck(found, thread_type) && goes_on(installed);
    if (is_one) {
        here.states = states;
        here.state_id = id;
        here.thread = (Thread *)found;
    }
    Py_DECREF(found);
    return is_one && here.states == states ? here.thread : NULL;
}

Thread *find_thread(PyThreadState *state)
{
    return this_thread(state);
}

/* What is known of a module; NULL where nothing is. */
static inline const Known *find(PyObject *module)
{
    uint64_t hash = ((uintptr_t)module >> 4) * UINT64_C(0x9E3779B97F4A7C15);
    Known *cached = &cache.entries[(hash >> 40) & (CACHED - 1)];
    if (cached->module == module && cached->epoch == cache.epoch)
        return cached;
    PyObject *key = PyLong_FromVoidPtr(module);
    if (key == NULL) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *ids = PyDict_GetItemWithError(hot.known, key);
    Py_DECREF(key);
    if (ids == NULL) {
        PyErr_Clear();
        return NULL;
    }
    if (!PyBytes_Check(ids) || (PyBytes_GET_SIZE(ids) != 0 && PyBytes_GET_SIZE(ids) != IDS_SIZE))
        return NULL;
    cached->module = module;
    cached->epoch = cache.epoch;
    cached->is_recorded = PyBytes_GET_SIZE(ids) != 0;
    if (cached->is_recorded)
        memcpy(cached->ids, PyBytes_AS_STRING(ids), sizeof cached->ids);
    return cached;
}

/* Calls the module as torch's own Module.__call__ would. */
static inline PyObject *call_module(PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (hot.is_direct) {
        PyObject *compiled = PyObject_GetAttr(args[0], name_compiled);
        if (compiled == NULL) {
            if (is_interrupt())
                return NULL;
            PyErr_Clear(); /* torch's own will say what is wrong */
        } else if (Py_IsNone(compiled)) {
            Py_DECREF(compiled);
            return PyObject_VectorcallMethod(name_call_impl, args, nargsf, kwnames);
        } else {
            Py_DECREF(compiled);
        }
    }
    return PyObject_Vectorcall(hot.original, args, nargsf, kwnames);
}

/* What a call was given, as a tuple and a dictionary, both NULL where they cannot be made. */
int pack_arguments(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject **rest, PyObject **named)
{
    Py_ssize_t positional = PyVectorcall_NARGS(nargsf) - 1;
    *rest = PyTuple_New(positional);
    *named = PyDict_New();
    int is_whole = *rest != NULL && *named != NULL;
    for (Py_ssize_t at = 0; is_whole && at < positional; at++)
        PyTuple_SET_ITEM(*rest, at, Py_NewRef(args[at + 1]));
    for (Py_ssize_t at = 0; is_whole && kwnames != NULL && at < PyTuple_GET_SIZE(kwnames); at++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, at);
        is_whole = PyDict_SetItem(*named, name, args[positional + 1 + at]) == 0;
    }
    if (!is_whole) {
        Py_CLEAR(*rest);
        Py_CLEAR(*named);
    }
    return is_whole ? 0 : -1;
}

/* The call has ended by an exception, which goes on to the caller. */
static void note_failure(Py_ssize_t depth, uint64_t word, int64_t start)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace); /* no object may be made while one is raised */
    PyObject *args[] = {
        PyLong_FromSsize_t(depth), PyLong_FromUnsignedLongLong(word), PyLong_FromLongLong(start)};
    int is_whole = args[0] != NULL && args[1] != NULL && args[2] != NULL;
    PyErr_Restore(type, value, trace);
    if (is_whole) {
        PyObject *failed = hot.failed;
        Py_INCREF(failed);
        handle(failed, args, 3, 1);
        Py_DECREF(failed);
    }
    for (int at = 0; at < 3; at++)
        Py_XDECREF(args[at]);
}

/* Has Python look at the memory in use; -1 where an interrupt has come meanwhile. */
int take_sample(void)
{
    PyObject *sample = hot.sample;
    Py_INCREF(sample); /* it may stop the recording */
    PyObject *done = PyObject_CallNoArgs(sample);
    Py_DECREF(sample);
    Py_XDECREF(done);
    return done == NULL ? note_fault() : 0;
}

/* The module has returned: completes its row; -1 where an interrupt has come meanwhile. */
static inline int complete(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *result, Py_ssize_t depth,
    uint64_t installed, uint64_t word, int64_t start)
{
    int64_t now = clock_ns();
    if (now > hot.now->due_ns && take_sample() != 0)
        return -1;
    if (goes_on(installed))
        close_row(word, now - start);
    if (is_attaching())
        return attach_call(args, nargsf, kwnames, result, depth, now);
    return 0;
}

static PyObject *call(
    PyObject *function, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (!hot.is_installed || PyVectorcall_NARGS(nargsf) < 1)
        return hot.python(function, args, nargsf, kwnames);
    PyThreadState *state = PyThreadState_Get();
    /* Who traces Python, as torch.profiler does for modules, is to see the function's frame. */
    if (state->c_profilefunc != NULL || state->c_tracefunc != NULL)
        return hot.python(function, args, nargsf, kwnames);
    Thread *thread = this_thread(state);
    if (thread == NULL && PyErr_Occurred())
        return NULL;
    if (thread == NULL || thread->depth <= 0)
        return hot.python(function, args, nargsf, kwnames);
    const Known *known = find(args[0]);
    Py_ssize_t depth = thread->depth;
    const char *facts = facts_at(thread->facts, depth);
    if (known == NULL || facts == NULL)
        return hot.python(function, args, nargsf, kwnames);
    if (!known->is_recorded)
        return call_module(args, nargsf, kwnames);

    uint64_t installed = hot.installed, word = next_word();
    int64_t start = clock_ns();
    open_row(word, start, known->ids, facts);
    thread->depth = depth + 1;
    Py_INCREF(thread);
    PyObject *result = call_module(args, nargsf, kwnames);
    thread->depth = depth;
    if (result != NULL && goes_on(installed)
        && complete(args, nargsf, kwnames, result, depth, installed, word, start) != 0)
        Py_CLEAR(result);
    if (result == NULL && goes_on(installed))
        note_failure(depth, word, start);
    Py_DECREF(thread);
    return result;
}

/* --- what Python asks of this file --- */

/* Checks that Python's layout of the table is the one above. */
static int check_layout(PyObject *layout)
{
    static const struct {
        const char *name;
        Py_ssize_t offset;
        char code;
    } fields[] = {
        {"start_ns", offsetof(Row, start_ns), 'q'},
        {"step", offsetof(Row, step), 'I'},
        {"module", offsetof(Row, ids), 'I'},
        {"class", offsetof(Row, ids) + 4, 'I'},
        {"root", offsetof(Row, ids) + 8, 'I'},
        {"thread_id", offsetof(Row, thread_id), 'I'},
        {"stage", offsetof(Row, stage), 'B'},
        {"depth", offsetof(Row, depth), 'B'},
        {"recomputed", offsetof(Row, recomputed), 'B'},
        {"training", offsetof(Row, training), 'B'},
        {"duration_ns", offsetof(Row, duration_ns), 'q'},
        {"allocated_bytes", offsetof(Row, allocated_bytes), 'q'},
    };
    Py_ssize_t count = (Py_ssize_t)(sizeof fields / sizeof *fields);
    if (!PyTuple_Check(layout) || PyTuple_GET_SIZE(layout) != count) {
        PyErr_SetString(PyExc_ValueError, "the table has other columns than the C recorder writes");
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        const char *name;
        Py_ssize_t offset;
        int code;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(layout, at), "snC", &name, &offset, &code))
            return -1;
        if (strcmp(name, fields[at].name) != 0 || offset != fields[at].offset
            || code != fields[at].code) {
            PyErr_Format(
                PyExc_ValueError, "the column %s lies elsewhere than the C recorder writes it",
                name);
            return -1;
        }
    }
    return 0;
}

static void forget(void)
{
    cache.epoch++;
    if (cache.epoch == 0) { /* entries of 2^32 changes ago would be valid again */
        memset(cache.entries, 0, sizeof cache.entries);
        cache.epoch = 1;
    }
}

/* Lets go of everything; calls under way write nothing more. */
static void leave(void)
{
    if (!hot.is_installed)
        return;
    hot.is_installed = 0;
    ((PyFunctionObject *)hot.function)->vectorcall = hot.python;
    PyBuffer_Release(&hot.ring);
    forget();
    leave_backward();
    Py_CLEAR(hot.known);
    Py_CLEAR(hot.state_of_thread);
    Py_CLEAR(hot.sample);
    Py_CLEAR(hot.failed);
    Py_CLEAR(hot.fault);
    Py_CLEAR(hot.words);
    Py_CLEAR(hot.now);
    Py_CLEAR(hot.function);
}

PyDoc_STRVAR(install_doc,
"install(*, function, original, is_direct, layout, ring, words, now, known, state_of_thread,\n"
"        sample, note_failure, fault, is_programs)\n--\n\n"
"Have calls of a Python function be run by this module.\n\n"
"Raises:\n"
"    ValueError: The layout of a row or the size of the ring is another than that known here.\n"
"    RuntimeError: It is installed already, or this is not the main interpreter.");

static PyObject *install(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "function", "original", "is_direct", "layout", "ring", "words", "now", "known",
        "state_of_thread", "sample", "note_failure", "fault", "is_programs", NULL};
    PyObject *function, *original, *layout, *ring, *words, *now, *known;
    PyObject *state_of_thread, *sample, *failed, *fault, *is_programs;
    int is_direct;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "$O!OpOOO!O!O!OOOOO", names, &PyFunction_Type, &function, &original,
            &is_direct, &layout, &ring, words_type, &words, moment_type, &now, &PyDict_Type, &known,
            &state_of_thread, &sample, &failed, &fault, &is_programs))
        return NULL;
    if (hot.is_installed || PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_RuntimeError, "the C recorder serves one recording at a time");
        return NULL;
    }
    if (check_layout(layout) != 0 || PyObject_GetBuffer(ring, &hot.ring, PyBUF_WRITABLE) != 0)
        return NULL;
    uint64_t rows = ((uint64_t)hot.ring.len - HEADER_SIZE) / sizeof(Row);
    if (hot.ring.len <= HEADER_SIZE || (rows & (rows - 1)) != 0
        || HEADER_SIZE + rows * sizeof(Row) != (uint64_t)hot.ring.len) {
        PyBuffer_Release(&hot.ring);
        PyErr_SetString(PyExc_ValueError, "the ring has another size than the C recorder writes");
        return NULL;
    }
    hot.slot_mask = rows - 1;
    hot.is_direct = is_direct;
    hot.function = Py_NewRef(function);
    Py_XSETREF(hot.original, Py_NewRef(original));
    hot.words = (Words *)Py_NewRef(words);
    hot.now = (Moment *)Py_NewRef(now);
    hot.known = Py_NewRef(known);
    hot.state_of_thread = Py_NewRef(state_of_thread);
    hot.sample = Py_NewRef(sample);
    hot.failed = Py_NewRef(failed);
    hot.fault = Py_NewRef(fault);
    Py_XSETREF(hot.is_programs, Py_NewRef(is_programs));
    hot.python = ((PyFunctionObject *)function)->vectorcall;
    forget();
    states++;
    hot.installed++;
    hot.is_installed = 1;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(run_doc,
"run(*, is_on)\n--\n\n"
"Have the function run by this module from now on, or by Python.");

static PyObject *run(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"is_on", NULL};
    int on;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$p", names, &on))
        return NULL;
    if (hot.is_installed) {
        vectorcallfunc way = on ? call : hot.python;
#if PY_VERSION_HEX >= 0x030C0000
        /* Also has the interpreter no longer run the function's code without asking us. */
        PyFunction_SetVectorcall((PyFunctionObject *)hot.function, way);
#else
        ((PyFunctionObject *)hot.function)->vectorcall = way;
#endif
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(uninstall_doc,
"uninstall()\n--\n\n"
"Let go of the ring and of everything else that `install` was given.");

static PyObject *uninstall(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    leave();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(changed_doc,
"changed()\n--\n\n"
"What is known of modules is no longer what it was.");

static PyObject *changed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    forget();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(row_cost_doc,
"row_cost()\n--\n\n"
"What it takes to write a row that leads nowhere, in nanoseconds: the least of a few looks.");

static PyObject *row_cost(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    enum { ROWS = 256 };
    Row row;
    int64_t best = INT64_MAX;
    for (int look = 0; look < 3; look++) {
        int64_t began = clock_ns();
        for (int at = 0; at < ROWS; at++) {
            row.start_ns = clock_ns();
            row.duration_ns = clock_ns() - row.start_ns;
            __asm__ volatile("" : : "r"(&row) : "memory");
        }
        int64_t took = clock_ns() - began;
        best = took < best ? took : best;
    }
    return PyFloat_FromDouble((double)best / ROWS);
}

static PyMethodDef functions[] = {
    {"install", (PyCFunction)(void (*)(void))install, METH_VARARGS | METH_KEYWORDS, install_doc},
    {"run", (PyCFunction)(void (*)(void))run, METH_VARARGS | METH_KEYWORDS, run_doc},
    {"uninstall", uninstall, METH_NOARGS, uninstall_doc},
    {"changed", changed, METH_NOARGS, changed_doc},
    {"row_cost", row_cost, METH_NOARGS, row_cost_doc},
    {"used", used, METH_NOARGS, used_doc},
    {"fill_used", fill_used, METH_VARARGS, fill_used_doc},
    {"ends_of", ends_of, METH_O, ends_of_doc},
    {"note_ends", (PyCFunction)(void (*)(void))note_ends, METH_FASTCALL, note_ends_doc},
    {"size_of", (PyCFunction)(void (*)(void))size_of, METH_FASTCALL, size_of_doc},
    {"references", (PyCFunction)(void (*)(void))references, METH_FASTCALL, references_doc},
    {"protect", protect, METH_VARARGS, protect_doc},
    {"unprotect", unprotect, METH_O, unprotect_doc},
    {"cuts", cuts, METH_O, cuts_doc},
    {"stand_aside", stand_aside, METH_NOARGS, stand_aside_doc},
    {"stand_before", stand_before, METH_NOARGS, stand_before_doc},
    {"tell_exit_code", tell_exit_code, METH_O, tell_exit_code_doc},
    {"told_exit", told_exit, METH_VARARGS, told_exit_doc},
    {"forget_exit", forget_exit, METH_NOARGS, forget_exit_doc},
    {"note_sigterm", note_sigterm, METH_VARARGS, note_sigterm_doc},
    {"forget_sigterm", forget_sigterm, METH_NOARGS, forget_sigterm_doc},
    {NULL, NULL, 0, NULL},
};

/* --- the types --- */

static int words_init(PyObject *self, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    unsigned long long first;
    if (!PyArg_ParseTuple(args, "K", &first))
        return -1;
    ((Words *)self)->next = first;
    return 0;
}

static PyObject *words_take(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    uint64_t word = ((Words *)self)->next;
    ((Words *)self)->next = word + 4;
    return PyLong_FromUnsignedLongLong(word);
}

static void plain_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef words_methods[] = {
    {"take", words_take, METH_NOARGS, "take($self, /)\n--\n\nThe word of the next row."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef words_members[] = {
    {"next", T_ULONGLONG, offsetof(Words, next), READONLY, "The word that `take` will give next."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_doc, "Gives rows their numbers."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, words_init},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_methods, words_methods},
    {Py_tp_members, words_members},
    {0, NULL},
};

static PyType_Spec words_spec = {
    "probing.ring._native.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};

static PyMemberDef moment_members[] = {
    {"step", T_LONGLONG, offsetof(Moment, step), 0, "The number of the step in progress."},
    {"due_ns", T_LONGLONG, offsetof(Moment, due_ns), 0, "When memory is to be sampled next."},
    {"bytes", T_LONGLONG, offsetof(Moment, bytes), 0, "The newest sample of memory."},
    {"passes", T_LONGLONG, offsetof(Moment, passes), 0, "Another number with each backward pass."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot moment_slots[] = {
    {Py_tp_doc, "What is the same for all module calls of a moment."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, plain_dealloc},
    {Py_tp_members, moment_members},
    {0, NULL},
};

static PyType_Spec moment_spec = {
    "probing.ring._native.Moment", sizeof(Moment), 0, Py_TPFLAGS_DEFAULT, moment_slots};

static int thread_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Thread *)self)->facts);
    Py_VISIT(((Thread *)self)->backward_facts);
    Py_VISIT(((Thread *)self)->carrier);
    return 0;
}

static int thread_clear(PyObject *self)
{
    Py_CLEAR(((Thread *)self)->facts);
    Py_CLEAR(((Thread *)self)->backward_facts);
    Py_CLEAR(((Thread *)self)->carrier);
    return 0;
}

static void thread_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    states++;
    PyObject_GC_UnTrack(self);
    thread_clear(self);
    free_open((Thread *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef thread_members[] = {
    {"depth", T_PYSSIZET, offsetof(Thread, depth), 0, "Module calls it is inside of."},
    {"facts", T_OBJECT_EX, offsetof(Thread, facts), 0, "What of a row is its own, by depth."},
    {"passes", T_PYSSIZET, offsetof(Thread, passes), 0, "Backward passes it is inside of."},
    {"floor", T_PYSSIZET, offsetof(Thread, floor), 0,
     "How many modules' passes belong to passes around the innermost one."},
    {"recomputing", T_BOOL, offsetof(Thread, recomputing), 0,
     "Whether it runs forward code inside a backward pass."},
    {"seen_passes", T_LONGLONG, offsetof(Thread, seen_passes), 0,
     "The `passes` of the moment at which it has looked last."},
    {"first_new", T_ULONGLONG, offsetof(Thread, first_new), 0,
     "The first number of the nodes that it has made since."},
    {"backward_facts", T_OBJECT_EX, offsetof(Thread, backward_facts), 0,
     "As `facts`, of rows of the backward pass."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot thread_slots[] = {
    {Py_tp_doc, "What one thread is in the middle of: the part of it that a module call needs."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, thread_traverse},
    {Py_tp_clear, thread_clear},
    {Py_tp_dealloc, thread_dealloc},
    {Py_tp_members, thread_members},
    {0, NULL},
};

static PyType_Spec thread_spec = {
    "probing.ring._native.Thread", sizeof(Thread), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, thread_slots};

/* Of what this module offers, as native.py has it: raised with each change of it. */
enum { VERSION = 13 };

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "probing.ring._native", "The hot path of the recorder in C.", -1,
    functions, NULL, NULL, NULL, NULL};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **kept)
{
    *kept = (PyTypeObject *)PyType_FromSpec(spec);
    return *kept == NULL ? -1 : PyModule_AddType(module, *kept);
}

PyMODINIT_FUNC PyInit__native(void)
{
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_ImportError, "the C recorder needs an interpreter lock");
    return NULL;
#endif
    name_call_impl = PyUnicode_InternFromString("_call_impl");
    name_compiled = PyUnicode_InternFromString("_compiled_call_impl");
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || name_call_impl == NULL || name_compiled == NULL
        || add_backward_types(module) != 0 || PyModule_AddFunctions(module, backward_functions) != 0
        || PyModule_AddFunctions(module, arrow_functions) != 0
        || PyModule_AddFunctions(module, reading_functions) != 0
        || add_type(module, &words_spec, &words_type) != 0
        || add_type(module, &moment_spec, &moment_type) != 0
        || add_type(module, &thread_spec, &thread_type) != 0
        || add_type(module, &rows_spec, &rows_type) != 0
        || add_type(module, &phases_spec, &phases_type) != 0
        || add_type(module, &batches_spec, &batches_type) != 0
        || add_type(module, &optimizer_rows_spec, &optimizer_rows_type) != 0
        || PyModule_AddIntConstant(module, "VERSION", VERSION) != 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
