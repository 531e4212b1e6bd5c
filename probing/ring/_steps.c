/* What is done at every phase of a step, in C: the clock of the phases, and what the thread has
 * used.
 *
 * Rules of this file: agent/sources/steps/phases.py does the same in Python and says what is meant;
 * a test compares the two. Used under the interpreter lock, by the training thread only. */

#include "_native.h"

#include <sys/resource.h>

enum { DATA, TO_DEVICE, FORWARD, LOSS, BACKWARD, GRADIENTS, OPTIMIZER, OTHER, GRADIENT_SYNC, COUNT };

static const char *const phase_names[COUNT] = {
    "data_wait", "to_device", "forward",   "loss", "backward",
    "gradients", "optimizer", "other",     "gradient_sync"};

_Static_assert(COUNT == PHASE_COUNT, "others know how many phases there are");

typedef struct {
    PyObject_HEAD
    PyObject *batch_began, *batch_ended, *watch;
    int64_t spent_ns[COUNT];
    int64_t since_ns, sync_ns;
    Py_ssize_t depth, room;
    uint8_t *inside; /* phases that are entered and not yet left */
    int last;
    char is_on, in_batch, had_backward;
} Phases;

/* Tells whoever listens; -1 where Python raised. */
static int tell(PyObject *listener, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value == NULL)
        return -1;
    Py_INCREF(listener);
    PyObject *done = PyObject_CallOneArg(listener, value);
    Py_DECREF(listener);
    Py_DECREF(value);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int tell_watch(Phases *self, const char *what, int phase)
{
    if (Py_IsNone(self->watch))
        return 0;
    PyObject *watch = Py_NewRef(self->watch);
    PyObject *done = PyObject_CallMethod(watch, what, "i", phase);
    Py_DECREF(watch);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The time until now was spent on one phase, but for what other ranks were waited for. */
static void pass_time(Phases *self, int phase, int64_t now)
{
    int64_t waited = self->sync_ns;
    self->sync_ns = 0;
    if (phase == BACKWARD || phase == GRADIENTS) {
        self->spent_ns[GRADIENT_SYNC] += waited;
        self->spent_ns[phase] -= waited;
    }
    self->spent_ns[phase] += now - self->since_ns;
    self->since_ns = now;
}

/* What lies between two phases. */
static int gap_between(int before, int after)
{
    if (after == FORWARD)
        return before == DATA ? TO_DEVICE : before == FORWARD ? LOSS : OTHER;
    if (after == BACKWARD)
        return before == FORWARD ? LOSS : OTHER;
    if (after == OPTIMIZER && (before == BACKWARD || before == OPTIMIZER))
        return GRADIENTS;
    return OTHER;
}

/* Whether micro-batches may begin and end here. */
static int may_divide(const Phases *self)
{
    return self->depth == 0 || (self->depth == 1 && self->inside[0] == OPTIMIZER);
}

/* What was done until a phase begins: also a closure has a loss between its passes. */
static int before_phase(const Phases *self, int phase)
{
    int gap = gap_between(self->last, phase);
    if (self->depth == 0)
        return gap;
    return gap == LOSS && may_divide(self) ? LOSS : self->inside[self->depth - 1];
}

static int finish_batch(Phases *self)
{
    if (!self->in_batch)
        return 0;
    self->in_batch = self->had_backward = 0;
    return tell(self->batch_ended, self->since_ns);
}

static int start_batch(Phases *self, int64_t now)
{
    self->in_batch = 1;
    return tell(self->batch_began, now);
}

/* A phase begins: what was before it is over; -1 where Python raised. */
static int come_to(Phases *self, int phase, int64_t now, int divides, int begins)
{
    int is_first = phase == DATA || phase == FORWARD;
    if (divides && self->had_backward && (is_first || phase == OPTIMIZER)
        && finish_batch(self) != 0)
        return -1;
    pass_time(self, before_phase(self, phase), now);
    return divides && begins && !self->in_batch && is_first ? start_batch(self, now) : 0;
}

static int push(Phases *self, int phase)
{
    if (self->depth == self->room) {
        Py_ssize_t room = self->room == 0 ? 16 : 2 * self->room;
        uint8_t *inside = PyMem_Realloc(self->inside, (size_t)room);
        if (inside == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->inside = inside;
        self->room = room;
    }
    self->inside[self->depth++] = (uint8_t)phase;
    return 0;
}

static PyObject *none_or_raise(int told)
{
    if (told != 0)
        return NULL;
    Py_RETURN_NONE;
}

static int is_phase(int phase)
{
    if (phase >= 0 && phase < COUNT)
        return 1;
    PyErr_SetString(PyExc_ValueError, "no phase has this number");
    return 0;
}

static void start_over(Phases *self, int last)
{
    self->is_on = 1;
    self->depth = 0;
    self->last = last;
    self->had_backward = 0;
}

static PyObject *phases_begin(PyObject *object, PyObject *now)
{
    Phases *self = (Phases *)object;
    int64_t since = PyLong_AsLongLong(now);
    if (since == -1 && PyErr_Occurred())
        return NULL;
    memset(self->spent_ns, 0, sizeof self->spent_ns);
    start_over(self, OTHER);
    self->since_ns = since;
    self->sync_ns = 0;
    self->in_batch = 0;
    Py_RETURN_NONE;
}

static PyObject *phases_end(PyObject *object, PyObject *now)
{
    Phases *self = (Phases *)object;
    int64_t end = PyLong_AsLongLong(now);
    if ((end == -1 && PyErr_Occurred()) || finish_batch(self) != 0)
        return NULL;
    pass_time(self, self->depth > 0 ? self->inside[self->depth - 1] : OTHER, end);
    self->is_on = 0;
    Py_RETURN_NONE;
}

static PyObject *phases_resume(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"in_batch", NULL};
    int in_batch;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$p", names, &in_batch))
        return NULL;
    start_over((Phases *)object, FORWARD);
    ((Phases *)object)->in_batch = (char)in_batch;
    Py_RETURN_NONE;
}

static PyObject *phases_enter(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Phases *self = (Phases *)object;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "enter() takes a phase and a time");
    if (!self->is_on)
        Py_RETURN_NONE;
    int phase = (int)PyLong_AsLong(args[0]);
    int64_t now = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || !is_phase(phase))
        return NULL;
    int divides = may_divide(self);
    if (come_to(self, phase, now, divides, 1) != 0
        || (divides && tell_watch(self, "entered", phase) != 0))
        return NULL;
    if (phase == OPTIMIZER) /* what it calls comes behind nothing */
        self->last = OPTIMIZER;
    return none_or_raise(push(self, phase));
}

static PyObject *phases_leave(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"", "trains", NULL};
    Phases *self = (Phases *)object;
    long long now;
    int trains = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|$p", names, &now, &trains))
        return NULL;
    if (!self->is_on || self->depth == 0)
        Py_RETURN_NONE;
    int phase = self->inside[--self->depth];
    int divides = may_divide(self);
    if (phase == OPTIMIZER && self->had_backward && finish_batch(self) != 0)
        return NULL;
    pass_time(self, phase, now);
    if (trains && phase == BACKWARD && self->in_batch && divides)
        self->had_backward = 1;
    if (divides)
        self->last = phase;
    return none_or_raise(divides ? tell_watch(self, "left", phase) : 0);
}

/* A clock of ours; NULL, and an exception, where it is none. */
static Phases *clock_of(PyObject *phases)
{
    if (phases != NULL && Py_IS_TYPE(phases, phases_type))
        return (Phases *)phases;
    PyErr_SetString(PyExc_RuntimeError, "the recording has ended");
    return NULL;
}

const int64_t *spent_in(PyObject *phases)
{
    const Phases *self = clock_of(phases);
    return self == NULL ? NULL : self->spent_ns;
}

int finish_batch_of(PyObject *phases)
{
    Phases *self = clock_of(phases);
    return self == NULL ? -1 : finish_batch(self);
}

int ensure_batch_of(PyObject *phases, int64_t now)
{
    Phases *self = clock_of(phases);
    if (self == NULL)
        return -1;
    return self->is_on && !self->in_batch && may_divide(self) ? start_batch(self, now) : 0;
}

static PyObject *phases_ensure_batch(PyObject *object, PyObject *now)
{
    int64_t begun = PyLong_AsLongLong(now);
    if (begun == -1 && PyErr_Occurred())
        return NULL;
    return none_or_raise(ensure_batch_of(object, begun));
}

static PyObject *phases_end_batch(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return none_or_raise(finish_batch((Phases *)object));
}

static PyObject *phases_data_waited(PyObject *object, PyObject *args)
{
    Phases *self = (Phases *)object;
    long long start, took;
    int has_batch = 1;
    if (!PyArg_ParseTuple(args, "LL|p", &start, &took, &has_batch))
        return NULL;
    if (!self->is_on || self->depth > 0)
        Py_RETURN_NONE;
    int64_t begun = start > self->since_ns ? start : self->since_ns;
    if (come_to(self, DATA, begun, 1, has_batch) != 0)
        return NULL;
    pass_time(self, DATA, start + took);
    if (has_batch)
        self->last = DATA;
    else if (self->last != BACKWARD)
        self->last = OTHER;
    Py_RETURN_NONE;
}

static PyObject *phases_synchronized(PyObject *object, PyObject *args)
{
    Phases *self = (Phases *)object;
    long long start, now;
    if (!PyArg_ParseTuple(args, "LL", &start, &now))
        return NULL;
    int doing = self->depth > 0 ? self->inside[self->depth - 1] : self->last;
    if (self->is_on && doing == BACKWARD) {
        int64_t known = self->since_ns + self->sync_ns;
        int64_t waited = now - (start > known ? start : known);
        self->sync_ns += waited > 0 ? waited : 0;
    }
    Py_RETURN_NONE;
}

static PyObject *phases_now(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    const Phases *self = (const Phases *)object;
    int doing = OTHER;
    if (self->is_on && self->in_batch && self->last == FORWARD && may_divide(self))
        doing = LOSS;
    else if (self->depth > 0)
        doing = self->inside[self->depth - 1];
    else if (self->is_on && self->last == DATA)
        doing = DATA;
    return PyLong_FromLong(doing);
}

/* What a phase has taken since `before`, which is a list of integers or NULL; -1: Python raised. */
static int spent_since(const Phases *self, PyObject *before, long phase, int64_t *spent)
{
    if (phase < 0 || phase >= COUNT) {
        PyErr_SetString(PyExc_ValueError, "no phase has this number");
        return -1;
    }
    *spent = self->spent_ns[phase];
    if (before != NULL)
        *spent -= PyLong_AsLongLong(PyList_GET_ITEM(before, phase));
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *phases_fill(PyObject *object, PyObject *args)
{
    PyObject *closing, *places, *before = NULL;
    if (!PyArg_ParseTuple(
            args, "O!O!|O", &PyList_Type, &closing, &PyTuple_Type, &places, &before))
        return NULL;
    if (before != NULL && Py_IsNone(before))
        before = NULL;
    if (before != NULL && (!PyList_Check(before) || PyList_GET_SIZE(before) != COUNT))
        return PyErr_Format(PyExc_ValueError, "there are %d phases", COUNT);
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(places); at++) {
        long phase;
        Py_ssize_t place;
        int64_t spent;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(places, at), "ln", &phase, &place)
            || spent_since((Phases *)object, before, phase, &spent) != 0)
            return NULL;
        if (spent == 0)
            continue;
        PyObject *seconds = PyFloat_FromDouble((double)spent * 1e-9);
        if (seconds == NULL || PyList_SetItem(closing, place, seconds) != 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *phases_spent(PyObject *object, void *Py_UNUSED(closure))
{
    PyObject *spent = PyList_New(COUNT);
    for (int phase = 0; spent != NULL && phase < COUNT; phase++) {
        PyObject *ns = PyLong_FromLongLong(((Phases *)object)->spent_ns[phase]);
        if (ns == NULL)
            Py_CLEAR(spent);
        else
            PyList_SET_ITEM(spent, phase, ns);
    }
    return spent;
}

static PyObject *phases_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *began, *ended, *names;
    if (!PyArg_ParseTuple(args, "OOO!", &began, &ended, &PyTuple_Type, &names))
        return NULL;
    int are_known = PyTuple_GET_SIZE(names) == COUNT;
    for (int phase = 0; are_known && phase < COUNT; phase++) {
        PyObject *name = PyTuple_GET_ITEM(names, phase);
        are_known = PyUnicode_Check(name)
            && PyUnicode_CompareWithASCIIString(name, phase_names[phase]) == 0;
    }
    if (!are_known)
        return PyErr_Format(PyExc_ValueError, "the phases are others than the C part knows");
    Phases *self = (Phases *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->batch_began = Py_NewRef(began);
    self->batch_ended = Py_NewRef(ended);
    self->watch = Py_NewRef(Py_None);
    self->last = OTHER;
    return (PyObject *)self;
}

static int phases_traverse(PyObject *object, visitproc visit, void *arg)
{
    Phases *self = (Phases *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->batch_began);
    Py_VISIT(self->batch_ended);
    Py_VISIT(self->watch);
    return 0;
}

/* None in the place of what is let go of: a collected clock may still be called. */
static int phases_clear(PyObject *object)
{
    Phases *self = (Phases *)object;
    self->is_on = self->in_batch = 0;
    Py_XSETREF(self->batch_began, Py_NewRef(Py_None));
    Py_XSETREF(self->batch_ended, Py_NewRef(Py_None));
    Py_XSETREF(self->watch, Py_NewRef(Py_None));
    return 0;
}

static void phases_dealloc(PyObject *object)
{
    Phases *self = (Phases *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->batch_began);
    Py_XDECREF(self->batch_ended);
    Py_XDECREF(self->watch);
    PyMem_Free(self->inside);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef phases_methods[] = {
    {"begin", phases_begin, METH_O, "begin($self, now_ns, /)\n--\n\nA step begins."},
    {"end", phases_end, METH_O, "end($self, now_ns, /)\n--\n\nThe step has ended."},
    {"resume", (PyCFunction)(void (*)(void))phases_resume, METH_VARARGS | METH_KEYWORDS,
     "resume($self, *, in_batch)\n--\n\nThe step that has ended last goes on."},
    {"enter", (PyCFunction)(void (*)(void))phases_enter, METH_FASTCALL,
     "enter($self, phase, now_ns, /)\n--\n\nA phase begins, perhaps within another one."},
    {"leave", (PyCFunction)(void (*)(void))phases_leave, METH_VARARGS | METH_KEYWORDS,
     "leave($self, now_ns, /, *, trains=True)\n--\n\nThe phase entered last has ended."},
    {"ensure_batch", phases_ensure_batch, METH_O,
     "ensure_batch($self, now_ns, /)\n--\n\nA micro-batch is in progress, at the latest now."},
    {"end_batch", phases_end_batch, METH_NOARGS,
     "end_batch($self, /)\n--\n\nThe micro-batch in progress has ended."},
    {"data_waited", phases_data_waited, METH_VARARGS,
     "data_waited($self, start_ns, took_ns, has_batch=True, /)\n--\n\nA batch has been waited for."},
    {"synchronized", phases_synchronized, METH_VARARGS,
     "synchronized($self, start_ns, now_ns, /)\n--\n\nOther ranks have been waited for."},
    {"now", phases_now, METH_NOARGS, "now($self, /)\n--\n\nWhat is being done now."},
    {"fill_seconds", phases_fill, METH_VARARGS,
     "fill_seconds($self, closing, places, before=None, /)\n--\n\n"
     "Fill in the columns of the phases that there were."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef phases_members[] = {
    {"batch_began", T_OBJECT, offsetof(Phases, batch_began), 0, "Called as one begins."},
    {"batch_ended", T_OBJECT, offsetof(Phases, batch_ended), 0, "Called as one has ended."},
    {"watch", T_OBJECT, offsetof(Phases, watch), 0, "Is told of the outermost phases."},
    {"is_on", T_BOOL, offsetof(Phases, is_on), 0, "Whether a step is being measured."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef phases_getset[] = {
    {"spent_ns", phases_spent, NULL, "By number of the phase, since the step began.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot phases_slots[] = {
    {Py_tp_doc, "Adds up what each phase of a step has taken."},
    {Py_tp_new, phases_new},
    {Py_tp_traverse, phases_traverse},
    {Py_tp_clear, phases_clear},
    {Py_tp_dealloc, phases_dealloc},
    {Py_tp_methods, phases_methods},
    {Py_tp_members, phases_members},
    {Py_tp_getset, phases_getset},
    {0, NULL},
};

PyType_Spec phases_spec = {
    "probing.ring._native.Phases", sizeof(Phases), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    phases_slots};

/* --- what the thread has used --- */

static double seconds_of(clockid_t clock)
{
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

const char used_doc[] =
    "used()\n--\n\n"
    "The calling thread, its processor time and the process's, and its faults and switches.";

PyObject *used(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    struct rusage counts;
    memset(&counts, 0, sizeof counts);
    getrusage(RUSAGE_THREAD, &counts);
    return Py_BuildValue(
        "(kddllll)", PyThread_get_thread_ident(), seconds_of(CLOCK_THREAD_CPUTIME_ID),
        seconds_of(CLOCK_PROCESS_CPUTIME_ID), counts.ru_minflt, counts.ru_majflt, counts.ru_nvcsw,
        counts.ru_nivcsw);
}

const char fill_used_doc[] =
    "fill_used(closing, first, before, gc_s, /)\n--\n\n"
    "Fill in what the calling thread has used since an earlier reading; returns a new one.";

PyObject *fill_used(PyObject *module, PyObject *args)
{
    PyObject *closing;
    Py_ssize_t first;
    double gc, cpu, process;
    unsigned long thread;
    long counts[4];
    if (!PyArg_ParseTuple(
            args, "O!n(kddllll)d", &PyList_Type, &closing, &first, &thread, &cpu, &process,
            &counts[0], &counts[1], &counts[2], &counts[3], &gc))
        return NULL;
    PyObject *now = used(module, NULL);
    if (now == NULL || thread != PyThread_get_thread_ident())
        return now;
    PyObject *columns[7] = {
        PyFloat_FromDouble(PyFloat_AsDouble(PyTuple_GET_ITEM(now, 1)) - cpu),
        PyFloat_FromDouble(PyFloat_AsDouble(PyTuple_GET_ITEM(now, 2)) - process),
        PyFloat_FromDouble(gc)};
    for (int at = 0; at < 4; at++)
        columns[3 + at] = PyLong_FromLong(PyLong_AsLong(PyTuple_GET_ITEM(now, 3 + at)) - counts[at]);
    for (int at = 0; at < 7; at++)
        if (columns[at] == NULL || PyList_SetItem(closing, first + at, columns[at]) != 0)
            Py_CLEAR(now);
    return now;
}
