/* Rows of the backward pass of modules, in C: hooks on the nodes of autograd's graph.
 *
 * Rules of this file: what agent/sources/calls/backward/module_backward.py says of its hooks holds
 * here; a test compares the rows of both. A hook is a Python function that returns None, for
 * whoever compiles backward passes; what is run in its place, as its vectorcall, is here. It does
 * not look at the gradient that it is called with. A node knows of us, we know of no node: no
 * tensor of the user's and no part of a graph outlives a call because of us. No node is hooked that
 * a pass under way may come to (new_nodes.py). Python is called only for what is rare: a module's
 * first call, a thread's first, a sample of memory, a step that is timed on the device, modes of
 * torch that would see what is asked of a tensor.
 */

#include "_native.h"

#define MOST_TENSORS 4 /* how many of a module's outputs, and of its inputs, are looked at */
#define LEVELS 2       /* of containers, one in another, in which they are looked for */
#define BEGUN 4096     /* the newest nodes whose numbers are kept */
#define TIMED 16       /* one in so many hooks is timed */
#define MOST_NS 20000  /* what it takes beyond that is another thread's or another process's */
#define DEVICE_BACKWARD 1

/* Where in its root a module is: the default of the second argument of its hooks. */
typedef struct Place {
    PyObject_HEAD
    PyObject *ids;     /* bytes */
    PyObject *path;    /* str */
    PyObject *encoded; /* bytes of it; `text` is in them */
    const char *text;
    Py_ssize_t length;
    Py_ssize_t depth;  /* in how many module calls its last call was nested */
    uint64_t installed;
} Place;

/* A module whose backward pass is recorded. */
typedef struct {
    PyObject_HEAD
    Place *place;
    PyObject *starts, *ends; /* dict: 0 -> the hook of its output, and that of its input */
} Hooked;

/* The nodes of some tensors. */
typedef struct {
    Py_ssize_t count;
    PyObject *nodes[MOST_TENSORS];
} Nodes;

/* What a call was given: by position, and by name in one of two ways. */
typedef struct {
    PyObject *const *values;
    Py_ssize_t positional, named;
    PyObject *kwargs;
} Given;

static struct {
    PyObject *tensor;        /* the type whose objects are looked at */
    PyObject *hook;          /* a function that others are made like */
    PyObject *hooked;        /* dict: id(module) -> Hooked or None */
    PyObject *make;          /* called with an id that is not in it */
    PyObject *carrier;       /* makes a tensor */
    PyObject *is_mode_on;    /* whether a mode would see what is asked of a tensor */
    PyObject *without_modes; /* calls `attach` unseen */
    PyObject *fault;
    PyObject *passing;       /* set: the threads that are inside a pass */
    PyObject *newest;        /* the number that the calling thread's next node will have */
    PyObject *is_walked;     /* whether the pass around the calling thread comes to a node */
    PyObject *entered, *left; /* of what times passes on the device, or NULL */
    PyObject *elsewhere;     /* list of threads that work for a pass of another one */
    int is_on;
    int rests;               /* whether graphs are left alone; hooks in place go on */
    uint64_t hooks, rows;    /* hooks put in place or called, and rows that came of them */
    int64_t timed_ns;        /* what one in so many has taken, together */
} backward;

static PyTypeObject *place_type, *hooked_type;
static PyObject *name_grad_fn, *name_hooks, *name_register, *name_sequence_nr, *zero;

int is_hooking(void)
{
    return backward.is_on && hot.is_installed;
}

int is_attaching(void)
{
    return is_hooking() && !backward.rests;
}

/* Counts what hooks cost: one in so many is timed. */
static inline int is_timed(void)
{
    return (++backward.hooks % TIMED) == 0;
}

static inline void add_cost(int timed, int64_t start)
{
    if (!timed)
        return;
    int64_t took = clock_ns() - start;
    backward.timed_ns += took < MOST_NS ? took : MOST_NS;
}

/* --- the rows: what hooks do --- */

/* Whether a module lies inside of another one. */
static inline int is_inside(const Place *inner, const Place *outer)
{
    return inner->length > outer->length && inner->text[outer->length] == '.'
        && memcmp(inner->text, outer->text, (size_t)outer->length) == 0;
}

/* Takes one out of the stack; the caller gets the reference to its place. */
static Open take_out(Thread *thread, Py_ssize_t at)
{
    Open taken = thread->open[at];
    thread->count--;
    memmove(&thread->open[at], &thread->open[at + 1],
            (size_t)(thread->count - at) * sizeof *thread->open);
    return taken;
}

/* Tells the timer, if there is one, that a pass has ended; -1 where it raised. */
static int tell_left(uint64_t word)
{
    if (backward.left == NULL)
        return 0;
    PyObject *left = Py_NewRef(backward.left);
    PyObject *done = PyObject_CallFunction(left, "K", (unsigned long long)word);
    Py_DECREF(left);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Completes one row; -1 where Python raised. */
static int complete_open(Open ended, int64_t now)
{
    int told = tell_left(ended.word);
    if (goes_on(ended.installed))
        close_row(ended.word, now - ended.start_ns);
    Py_DECREF(ended.place);
    return told;
}

/* Completes the rows of a stack down to a place; -1 where Python raised. */
static int close_down(Thread *thread, Py_ssize_t floor, int64_t now)
{
    if (hot.is_installed && now > hot.now->due_ns && take_sample() != 0)
        return -1;
    while (thread->count > floor)
        if (complete_open(take_out(thread, thread->count - 1), now) != 0)
            return -1;
    return 0;
}

static int make_room(Thread *thread)
{
    if (thread->count < thread->room)
        return 0;
    Py_ssize_t room = thread->room == 0 ? 16 : 2 * thread->room;
    Open *open = PyMem_Realloc(thread->open, (size_t)room * sizeof *open);
    if (open == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    thread->open = open;
    thread->room = room;
    return 0;
}

/* Opens a row, as that of the module at a place in the stack; -1 where Python raised. */
static int open_at(Thread *thread, Py_ssize_t at, Place *place, int64_t start)
{
    const char *facts = facts_at(thread->backward_facts, place->depth);
    if (facts == NULL || !is_hooking() || at > thread->count)
        return 0;
    if (make_room(thread) != 0)
        return -1;
    uint64_t word = next_word();
    open_row(word, start, (const uint8_t *)PyBytes_AS_STRING(place->ids), facts);
    memmove(&thread->open[at + 1], &thread->open[at],
            (size_t)(thread->count - at) * sizeof *thread->open);
    Py_INCREF(place);
    thread->open[at] = (Open){place, word, hot.installed, start};
    thread->count++;
    thread->fresh++;
    backward.rows++;
    if (backward.entered == NULL)
        return 0;
    PyObject *entered = Py_NewRef(backward.entered);
    PyObject *done = PyObject_CallFunction(
        entered, "KOin", (unsigned long long)word, place->ids, DEVICE_BACKWARD, place->depth);
    Py_DECREF(entered);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The gradient of a module's output is complete; -1 where Python raised. */
static int begin_in(Thread *thread, Place *place, int64_t now)
{
    Py_ssize_t top = thread->count, at = top, floor = thread->floor, fresh = thread->fresh;
    int64_t start = now;
    if (!is_hooking())
        return 0;
    if (top == 0 && thread->passes == 0 && PyList_Append(backward.elsewhere, (PyObject *)thread) != 0)
        return -1;
    /* Modules whose outputs come from the same node begin at once, the innermost first. */
    while (fresh > 0 && at > floor && is_inside(thread->open[at - 1].place, place)) {
        at--, fresh--;
        start = thread->open[at].start_ns;
    }
    if (at == top) {
        while (at > floor && !is_inside(place, thread->open[at - 1].place))
            at--;
        if (at < top) {
            if (close_down(thread, at, now) != 0)
                return -1;
            thread->fresh = 0;
        }
    } else if (at > floor && thread->open[at - 1].place == place) { /* its next call, made before */
        if (complete_open(take_out(thread, --at), start) != 0)
            return -1;
    }
    return open_at(thread, at, place, start);
}

/* The gradient of a module's input is complete; -1 where Python raised. */
static int end_in(Thread *thread, Place *place, int64_t now)
{
    for (Py_ssize_t at = thread->count - 1; at >= thread->floor && at >= 0; at--)
        if (thread->open[at].place == place) {
            thread->fresh = 0;
            return close_down(thread, at, now);
        }
    return 0;
}

typedef int (*Doing)(Thread *thread, Place *place, int64_t now);

/* Does something in the calling thread, which is held: the recording may end in the midst of it. */
static int do_here(Doing doing, Place *place, int64_t now)
{
    Thread *thread = find_thread(PyThreadState_Get());
    if (thread == NULL || !hot.is_installed) /* Python may have stopped it meanwhile */
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(thread);
    int told = doing(thread, place, now);
    Py_DECREF(thread);
    return told;
}

/* What a hook returns, whatever has happened: None, unless an interrupt has come meanwhile. */
static PyObject *returned(int told, int64_t now, int timed)
{
    if (told != 0 && note_fault_by(backward.fault) != 0)
        return NULL;
    add_cost(timed, now);
    Py_RETURN_NONE;
}

/* The place that a hook is made for; NULL for one of another recording. */
static inline Place *place_of(PyObject *hook)
{
    PyObject *defaults = PyFunction_GET_DEFAULTS(hook);
    if (!hot.is_installed || defaults == NULL || PyTuple_GET_SIZE(defaults) != 1)
        return NULL;
    PyObject *found = PyTuple_GET_ITEM(defaults, 0);
    if (!Py_IS_TYPE(found, place_type) || ((Place *)found)->installed != hot.installed)
        return NULL;
    return (Place *)found;
}

/* The hook of a module's output: its backward begins. */
static PyObject *call_start(
    PyObject *hook, PyObject *const *Py_UNUSED(args), size_t Py_UNUSED(count),
    PyObject *Py_UNUSED(names))
{
    Place *place = place_of(hook);
    if (place == NULL || !backward.is_on)
        Py_RETURN_NONE;
    int timed = is_timed();
    int64_t now = clock_ns();
    return returned(do_here(begin_in, place, now), now, timed);
}

/* The hook of its input: its backward ends. */
static PyObject *call_end(
    PyObject *hook, PyObject *const *Py_UNUSED(args), size_t Py_UNUSED(count),
    PyObject *Py_UNUSED(names))
{
    Place *place = place_of(hook);
    if (place == NULL)
        Py_RETURN_NONE;
    int timed = is_timed();
    int64_t now = clock_ns();
    return returned(do_here(end_in, place, now), now, timed);
}

void free_open(Thread *thread)
{
    while (thread->count > 0)
        Py_DECREF(thread->open[--thread->count].place);
    PyMem_Free(thread->open);
    PyMem_Free(thread->begun);
    thread->open = NULL;
    thread->begun = NULL;
}

/* --- what is hooked: nodes that a module's call has made --- */

static void drop(Nodes *found)
{
    while (found->count > 0)
        Py_DECREF(found->nodes[--found->count]);
}

/* Adds the node of a tensor, or those of the tensors in a container; -1 where Python raised. */
static int collect(PyObject *value, int levels, Nodes *found)
{
    if ((PyObject *)Py_TYPE(value) == backward.tensor) {
        PyObject *node = PyObject_GetAttr(value, name_grad_fn);
        if (node == NULL)
            return -1;
        if (Py_IsNone(node))
            Py_DECREF(node);
        else
            found->nodes[found->count++] = node;
        return 0;
    }
    if (levels == 0)
        return 0;
    PyObject *key, *item;
    Py_ssize_t at = 0;
    int is_dict = PyDict_Check(value), is_tuple = PyTuple_Check(value);
    if (!is_dict && !is_tuple && !PyList_Check(value))
        return 0;
    while (found->count < MOST_TENSORS) {
        if (is_dict) {
            if (!PyDict_Next(value, &at, &key, &item))
                return 0;
        } else {
            if (at >= (is_tuple ? PyTuple_GET_SIZE(value) : PyList_GET_SIZE(value)))
                return 0;
            item = is_tuple ? PyTuple_GET_ITEM(value, at) : PyList_GET_ITEM(value, at);
            at++;
        }
        Py_INCREF(item);
        int told = collect(item, levels - 1, found);
        Py_DECREF(item);
        if (told != 0)
            return -1;
    }
    return 0;
}

/* Adds the nodes of what a call was given: by position, or by name if there are none. The
 * dictionary of names is no container of the caller's, nor is the tuple of the others. */
static int collect_given(const Given *given, Nodes *found)
{
    for (Py_ssize_t at = 0; at < given->positional && found->count < MOST_TENSORS; at++)
        if (collect(given->values[at], LEVELS, found) != 0)
            return -1;
    if (found->count > 0)
        return 0;
    for (Py_ssize_t at = 0; at < given->named && found->count < MOST_TENSORS; at++)
        if (collect(given->values[given->positional + at], LEVELS, found) != 0)
            return -1;
    return given->kwargs == NULL ? 0 : collect(given->kwargs, LEVELS + 1, found);
}

/* A number of nodes, whose reference is taken; -1 where Python raised. */
static int take_number(PyObject *found, uint64_t *number)
{
    if (found == NULL)
        return -1;
    *number = PyLong_AsUnsignedLongLongMask(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : 0;
}

/* When a node was made; -1 where Python raised. */
static int number_of(PyObject *node, uint64_t *number)
{
    PyObject *found = PyObject_VectorcallMethod(
        name_sequence_nr, &node, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    return take_number(found, number);
}

/* The number that this thread's next node will have; -1 where Python raised. */
static int next_number(uint64_t *number)
{
    PyObject *newest = Py_NewRef(backward.newest);
    PyObject *found = PyObject_CallNoArgs(newest);
    Py_DECREF(newest);
    return take_number(found, number);
}

/* Whether the pass around this thread comes to a node, as far as torch can tell. */
static int is_walked(PyObject *node)
{
    PyObject *asked = Py_XNewRef(backward.is_walked);
    PyObject *answer = asked == NULL ? NULL : PyObject_CallOneArg(asked, node);
    Py_XDECREF(asked);
    if (answer == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_RuntimeError))
            return -1;
        PyErr_Clear();
    }
    int is_no = answer == Py_False;
    Py_XDECREF(answer);
    return !is_no;
}

/* Whether no pass under way can come to a node, as this thread has made it since the last of them
 * has begun. Another thread's may bear the same number: of the pass around us torch knows better.
 * -1 where Python raised. */
static int is_new(const Thread *thread, PyObject *node, uint64_t next)
{
    uint64_t number;
    if (number_of(node, &number) != 0)
        return -1;
    if (number < thread->first_new || number >= next)
        return 0;
    int told = thread->recomputing ? is_walked(node) : 0;
    return told < 0 ? -1 : !told;
}

static inline int is_among(const Nodes *nodes, const PyObject *node)
{
    for (Py_ssize_t at = 0; at < nodes->count; at++)
        if (nodes->nodes[at] == node)
            return 1;
    return 0;
}

/* Hands hooks to nodes, while no other pass has begun; whether one has, -1 where Python raised. */
static int hand_over(Thread *thread, PyObject *hooks, const Nodes *nodes, long long passes)
{
    if (thread->carrier == NULL) {
        if (!is_hooking()) /* a collection may have run Python meanwhile, which stopped it */
            return 1;
        PyObject *carrier_of = Py_NewRef(backward.carrier);
        PyObject *made = PyObject_CallNoArgs(carrier_of);
        Py_DECREF(carrier_of);
        if (made == NULL)
            return -1;
        Py_XSETREF(thread->carrier, made);
    }
    PyObject *carrier = Py_NewRef(thread->carrier);
    int told = PyObject_SetAttr(carrier, name_hooks, hooks);
    for (Py_ssize_t at = 0; told == 0 && at < nodes->count; at++) {
        if (!is_hooking() || hot.now->passes != passes) { /* Python has run meanwhile */
            told = 1;
            break;
        }
        PyObject *args[] = {nodes->nodes[at], carrier};
        PyObject *done = PyObject_VectorcallMethod(
            name_register, args, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        Py_XDECREF(done);
        told = done == NULL ? -1 : 0;
    }
    Py_DECREF(carrier);
    return told;
}

static inline uint64_t *begun_at(Thread *thread, uint64_t number)
{
    return &thread->begun[number % BEGUN];
}

/* The node that the pass comes to last, the first that was made, and its number; NULL where there
 * is none, where it is also an output, or where Python raised. */
static PyObject *last_of(const Nodes *inputs, const Nodes *outputs, uint64_t *least)
{
    PyObject *last = NULL;
    uint64_t number;
    for (Py_ssize_t at = 0; at < inputs->count; at++) {
        if (number_of(inputs->nodes[at], &number) != 0)
            return NULL;
        if (last == NULL || number < *least) {
            *least = number;
            last = inputs->nodes[at];
        }
    }
    return last != NULL && is_among(outputs, last) ? NULL : last;
}

/* Hooks outputs, and the last of the inputs unless it is NULL; -1 where Python raised. */
static int hook_nodes(
    Thread *thread, Hooked *hooked, const Nodes *outputs, PyObject *last, uint64_t least,
    long long passes)
{
    int told = hand_over(thread, hooked->starts, outputs, passes);
    /* Where a module begins, this one ends anyway. */
    if (told == 0 && last != NULL && *begun_at(thread, least) != least + 1) {
        Nodes inputs = {1, {last}};
        told = hand_over(thread, hooked->ends, &inputs, passes);
    }
    for (Py_ssize_t at = 0; told == 0 && at < outputs->count; at++) {
        uint64_t number;
        told = number_of(outputs->nodes[at], &number);
        if (told == 0)
            *begun_at(thread, number) = number + 1;
    }
    return told < 0 ? -1 : 0;
}

/* The same while a pass is under way: only of nodes that are new. Beside another thread's pass no
 * input counts as such, for it may be a node of that thread's. */
static int hook_new(
    Thread *thread, Hooked *hooked, const Nodes *outputs, const Nodes *inputs, PyObject *last,
    uint64_t least, long long passes)
{
    Nodes found = {0, {NULL}};
    uint64_t next;
    if (next_number(&next) != 0)
        return -1;
    if (thread->seen_passes != passes) { /* one has begun in the midst of this call */
        thread->seen_passes = passes;
        thread->first_new = next;
        return 0;
    }
    for (Py_ssize_t at = 0; at < outputs->count; at++) {
        PyObject *node = outputs->nodes[at];
        int told = thread->recomputing || !is_among(inputs, node) ? is_new(thread, node, next) : 0;
        if (told < 0)
            return -1;
        if (told)
            found.nodes[found.count++] = node;
    }
    int told = last != NULL && thread->recomputing ? is_new(thread, last, next) : 0;
    return told < 0 ? -1 : hook_nodes(thread, hooked, &found, told ? last : NULL, least, passes);
}

/* Hooks what a module has made in a thread; -1 where Python raised. */
static int attach_in(Thread *thread, Hooked *hooked, const Nodes *inputs, const Nodes *outputs)
{
    if (thread->begun == NULL) {
        thread->begun = PyMem_Calloc(BEGUN, sizeof *thread->begun);
        if (thread->begun == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    uint64_t least = 0;
    PyObject *last = last_of(inputs, outputs, &least);
    if (PyErr_Occurred() || !is_hooking()) /* Python may have stopped it meanwhile */
        return PyErr_Occurred() ? -1 : 0;
    long long passes = hot.now->passes;
    if (thread->recomputing || PySet_GET_SIZE(backward.passing) > 0)
        return hook_new(thread, hooked, outputs, inputs, last, least, passes);
    return hook_nodes(thread, hooked, outputs, last, least, passes);
}

/* The same in the calling thread, which is held: the recording may end in the midst of it. */
static int attach_to(Hooked *hooked, const Given *given, const Nodes *outputs, Py_ssize_t depth)
{
    Thread *thread = find_thread(PyThreadState_Get());
    if (thread == NULL || !is_hooking()) /* Python may have stopped it meanwhile */
        return PyErr_Occurred() ? -1 : 0;
    Py_INCREF(thread);
    hooked->place->depth = depth;
    Nodes inputs = {0, {NULL}};
    int told = collect_given(given, &inputs);
    if (told == 0)
        told = attach_in(thread, hooked, &inputs, outputs);
    drop(&inputs);
    Py_DECREF(thread);
    return told;
}

/* What hooks a module, a new reference; NULL where nothing does, or where Python raised. */
static Hooked *hooked_of(PyObject *module)
{
    if (!is_hooking()) /* a collection may have run Python meanwhile, which stopped it */
        return NULL;
    PyObject *key = PyLong_FromVoidPtr(module);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(backward.hooked, key));
    if (found == NULL && !PyErr_Occurred()) {
        PyObject *make = Py_NewRef(backward.make), *hooked = Py_NewRef(backward.hooked);
        found = PyObject_CallOneArg(make, key);
        if (found != NULL && PyDict_SetItem(hooked, key, found) != 0)
            Py_CLEAR(found);
        Py_DECREF(make);
        Py_DECREF(hooked);
    }
    Py_DECREF(key);
    if (found != NULL && !PyObject_TypeCheck(found, hooked_type))
        Py_CLEAR(found);
    return (Hooked *)found;
}

/* Whether a mode of torch would see what is asked of a tensor; -1 where Python raised. */
static inline int sees_mode(void)
{
    if (backward.is_mode_on == NULL)
        return 0;
    PyObject *is_mode_on = Py_NewRef(backward.is_mode_on);
    PyObject *answer = PyObject_CallNoArgs(is_mode_on);
    Py_DECREF(is_mode_on);
    if (answer == NULL)
        return -1;
    int is_on = Py_IsTrue(answer);
    Py_DECREF(answer);
    return is_on;
}

/* Has Python do what `attach_call` does, where no mode sees it; -1 where Python raised. */
static int attach_without_modes(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *result, Py_ssize_t depth)
{
    PyObject *rest, *named, *done = NULL;
    Hooked *hooked = hooked_of(args[0]);
    if (hooked == NULL || !is_hooking()) { /* the same */
        Py_XDECREF(hooked);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (pack_arguments(args, nargsf, kwnames, &rest, &named) == 0) {
        PyObject *way = Py_NewRef(backward.without_modes);
        done = PyObject_CallFunction(way, "OOOOn", hooked, rest, named, result, depth);
        Py_DECREF(way);
    }
    Py_XDECREF(rest);
    Py_XDECREF(named);
    Py_DECREF(hooked);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* The same, in C. */
static int attach_in_c(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *result, Py_ssize_t depth)
{
    Nodes outputs = {0, {NULL}};
    int told = collect(result, LEVELS, &outputs);
    Hooked *hooked = told == 0 && outputs.count > 0 ? hooked_of(args[0]) : NULL;
    if (hooked != NULL) {
        Given given = {
            args + 1, PyVectorcall_NARGS(nargsf) - 1,
            kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames), NULL};
        told = attach_to(hooked, &given, &outputs, depth);
        Py_DECREF(hooked);
    } else if (PyErr_Occurred()) {
        told = -1;
    }
    drop(&outputs);
    return told;
}

/* A module has returned: hooks the graph that its call has made; -1 where an interrupt has come. */
int attach_call(
    PyObject *const *args, size_t nargsf, PyObject *kwnames, PyObject *result, Py_ssize_t depth,
    int64_t now)
{
    int timed = is_timed();
    int told = sees_mode();
    if (told == 0)
        told = attach_in_c(args, nargsf, kwnames, result, depth);
    else if (told > 0)
        told = attach_without_modes(args, nargsf, kwnames, result, depth);
    if (told != 0)
        return note_fault_by(backward.fault);
    add_cost(timed, now);
    return 0;
}

/* --- what Python asks of this file --- */

PyDoc_STRVAR(hook_backward_doc,
"hook_backward(*, tensor, hook, hooked, make, carrier, is_mode_on, without_modes, fault, passing,\n"
"              newest, is_walked)\n--\n\n"
"Say with what graphs are hooked, once calls are recorded by this module.");

static PyObject *hook_backward(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {
        "tensor", "hook", "hooked", "make", "carrier", "is_mode_on", "without_modes", "fault",
        "passing", "newest", "is_walked", NULL};
    PyObject *tensor, *hook, *hooked, *make, *carrier, *is_mode_on, *without_modes, *fault;
    PyObject *passing, *newest, *walked;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "$OO!O!OOOOOO!OO", names, &tensor, &PyFunction_Type, &hook, &PyDict_Type,
            &hooked, &make, &carrier, &is_mode_on, &without_modes, &fault, &PySet_Type, &passing,
            &newest, &walked))
        return NULL;
    PyObject *elsewhere = PyList_New(0);
    if (elsewhere == NULL)
        return NULL;
    leave_backward();
    backward.tensor = Py_NewRef(tensor);
    backward.hook = Py_NewRef(hook);
    backward.hooked = Py_NewRef(hooked);
    backward.make = Py_NewRef(make);
    backward.carrier = Py_NewRef(carrier);
    backward.is_mode_on = Py_IsNone(is_mode_on) ? NULL : Py_NewRef(is_mode_on);
    backward.without_modes = Py_NewRef(without_modes);
    backward.fault = Py_NewRef(fault);
    backward.passing = Py_NewRef(passing);
    backward.newest = Py_NewRef(newest);
    backward.is_walked = Py_NewRef(walked);
    backward.elsewhere = elsewhere;
    Py_RETURN_NONE;
}

/* Lets go of everything; hooks that are in place do nothing. */
void leave_backward(void)
{
    backward.is_on = backward.rests = 0;
    Py_CLEAR(backward.tensor);
    Py_CLEAR(backward.hook);
    Py_CLEAR(backward.hooked);
    Py_CLEAR(backward.make);
    Py_CLEAR(backward.carrier);
    Py_CLEAR(backward.is_mode_on);
    Py_CLEAR(backward.without_modes);
    Py_CLEAR(backward.fault);
    Py_CLEAR(backward.passing);
    Py_CLEAR(backward.newest);
    Py_CLEAR(backward.is_walked);
    Py_CLEAR(backward.entered);
    Py_CLEAR(backward.left);
    Py_CLEAR(backward.elsewhere);
}

PyDoc_STRVAR(run_backward_doc,
"run_backward(*, is_on=False, rests=False)\n--\n\n"
"Hook graphs from now on, or no more: where hooking only rests, hooks in place still do their work.");

static PyObject *run_backward(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"is_on", "rests", NULL};
    int on = 0, rests = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$pp", names, &on, &rests))
        return NULL;
    backward.rests = rests;
    backward.is_on = on && backward.elsewhere != NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(time_backward_doc,
"time_backward(entered, left, /)\n--\n\n"
"Call these as a pass begins and ends, from now on; None for nothing.");

static PyObject *time_backward(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *entered, *left;
    if (!PyArg_ParseTuple(args, "OO", &entered, &left))
        return NULL;
    Py_XSETREF(backward.entered, Py_IsNone(entered) ? NULL : Py_NewRef(entered));
    Py_XSETREF(backward.left, Py_IsNone(left) ? NULL : Py_NewRef(left));
    Py_RETURN_NONE;
}

PyDoc_STRVAR(attach_doc,
"attach(hooked, args, kwargs, result, depth, /)\n--\n\n"
"Hook the graph that a module's call has made.");

static PyObject *attach(PyObject *Py_UNUSED(module), PyObject *values)
{
    PyObject *hooked, *args, *kwargs, *result;
    Py_ssize_t depth;
    if (!PyArg_ParseTuple(
            values, "O!O!O!On", hooked_type, &hooked, &PyTuple_Type, &args, &PyDict_Type, &kwargs,
            &result, &depth))
        return NULL;
    if (!is_attaching())
        Py_RETURN_NONE;
    int64_t start = clock_ns();
    int timed = is_timed();
    Nodes outputs = {0, {NULL}};
    Given given = {((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), 0, kwargs};
    int told = collect(result, LEVELS, &outputs);
    if (told == 0 && outputs.count > 0)
        told = attach_to((Hooked *)hooked, &given, &outputs, depth);
    drop(&outputs);
    if (told != 0)
        return NULL;
    add_cost(timed, start);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(close_backward_doc,
"close_backward(thread, floor, is_outermost, /)\n--\n\n"
"A pass has ended, and with it whatever it had begun.");

static PyObject *close_backward(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *thread;
    Py_ssize_t floor;
    int is_outermost;
    if (!PyArg_ParseTuple(args, "O!np", thread_type, &thread, &floor, &is_outermost))
        return NULL;
    int64_t now = clock_ns();
    if (close_down((Thread *)thread, floor, now) != 0)
        return NULL;
    while (is_outermost && backward.elsewhere != NULL && PyList_GET_SIZE(backward.elsewhere) > 0) {
        Py_ssize_t at = PyList_GET_SIZE(backward.elsewhere) - 1;
        PyObject *other = Py_NewRef(PyList_GET_ITEM(backward.elsewhere, at));
        int told = PyList_SetSlice(backward.elsewhere, at, at + 1, NULL);
        if (told == 0)
            told = close_down((Thread *)other, 0, now);
        Py_DECREF(other);
        if (told != 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(backward_count_doc,
"backward_count(thread, /)\n--\n\n"
"How many modules' backward passes are under way in a thread.");

static PyObject *backward_count(PyObject *Py_UNUSED(module), PyObject *thread)
{
    if (!PyObject_TypeCheck(thread, thread_type))
        return PyErr_Format(PyExc_TypeError, "not a thread");
    return PyLong_FromSsize_t(((Thread *)thread)->count);
}

PyDoc_STRVAR(backward_inside_doc,
"backward_inside(thread, /)\n--\n\n"
"The numbers of the innermost module whose backward pass is under way; None without.");

static PyObject *backward_inside(PyObject *Py_UNUSED(module), PyObject *thread)
{
    if (!PyObject_TypeCheck(thread, thread_type))
        return PyErr_Format(PyExc_TypeError, "not a thread");
    Thread *own = (Thread *)thread;
    if (own->count > own->floor)
        return Py_NewRef(own->open[own->count - 1].place->ids);
    Py_ssize_t at = backward.elsewhere == NULL ? 0 : PyList_GET_SIZE(backward.elsewhere);
    while (--at >= 0) {
        Thread *other = (Thread *)PyList_GET_ITEM(backward.elsewhere, at);
        if (other->count > 0)
            return Py_NewRef(other->open[other->count - 1].place->ids);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(backward_costs_doc,
"backward_costs()\n--\n\n"
"Rows written so far; hooks put in place or called; how many of those were timed, and what they took.");

static PyObject *backward_costs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return Py_BuildValue(
        "KKKL", (unsigned long long)backward.rows, (unsigned long long)backward.hooks,
        (unsigned long long)backward.hooks / TIMED, (long long)backward.timed_ns);
}

PyDoc_STRVAR(new_backward_costs_doc,
"new_backward_costs()\n--\n\n"
"What has come to those since they were last asked for by this.");

static PyObject *new_backward_costs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    static unsigned long long rows, hooks, timed;
    static long long ns;
    unsigned long long timed_now = backward.hooks / TIMED;
    PyObject *costs = Py_BuildValue(
        "KKKL", backward.rows - rows, backward.hooks - hooks, timed_now - timed,
        (long long)backward.timed_ns - ns);
    rows = backward.rows;
    hooks = backward.hooks;
    timed = timed_now;
    ns = backward.timed_ns;
    return costs;
}

PyMethodDef backward_functions[] = {
    {"hook_backward", (PyCFunction)(void (*)(void))hook_backward, METH_VARARGS | METH_KEYWORDS,
     hook_backward_doc},
    {"run_backward", (PyCFunction)(void (*)(void))run_backward, METH_VARARGS | METH_KEYWORDS,
     run_backward_doc},
    {"time_backward", time_backward, METH_VARARGS, time_backward_doc},
    {"attach", attach, METH_VARARGS, attach_doc},
    {"close_backward", close_backward, METH_VARARGS, close_backward_doc},
    {"backward_count", backward_count, METH_O, backward_count_doc},
    {"backward_inside", backward_inside, METH_O, backward_inside_doc},
    {"backward_costs", backward_costs, METH_NOARGS, backward_costs_doc},
    {"new_backward_costs", new_backward_costs, METH_NOARGS, new_backward_costs_doc},
    {NULL, NULL, 0, NULL},
};

/* --- the types --- */

static void place_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Place *)self)->ids);
    Py_XDECREF(((Place *)self)->path);
    Py_XDECREF(((Place *)self)->encoded);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot place_slots[] = {
    {Py_tp_doc, "Where in its root a module is."},
    {Py_tp_dealloc, place_dealloc},
    {0, NULL},
};

static PyType_Spec place_spec = {
    "probing.ring._native.Place", sizeof(Place), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, place_slots};

/* A dictionary of one hook, which is run by a function of ours. */
static PyObject *hooks_of(PyObject *like, Place *place, vectorcallfunc run)
{
    PyObject *hook = PyFunction_New(PyFunction_GET_CODE(like), PyFunction_GET_GLOBALS(like));
    PyObject *defaults = hook == NULL ? NULL : PyTuple_Pack(1, place);
    PyObject *hooks = defaults == NULL ? NULL : PyDict_New();
    if (hooks != NULL
        && (PyFunction_SetDefaults(hook, defaults) != 0 || PyDict_SetItem(hooks, zero, hook) != 0))
        Py_CLEAR(hooks);
    if (hooks != NULL) {
#if PY_VERSION_HEX >= 0x030C0000
        PyFunction_SetVectorcall((PyFunctionObject *)hook, run);
#else
        ((PyFunctionObject *)hook)->vectorcall = run;
#endif
    }
    Py_XDECREF(defaults);
    Py_XDECREF(hook);
    return hooks;
}

static Place *new_place(PyObject *ids, PyObject *path)
{
    /* A name is any str, lone surrogates included. */
    PyObject *encoded = PyUnicode_AsEncodedString(path, "utf-8", "surrogatepass");
    Place *place = encoded == NULL ? NULL : PyObject_New(Place, place_type);
    if (place == NULL) {
        Py_XDECREF(encoded);
        return NULL;
    }
    place->ids = Py_NewRef(ids);
    place->path = Py_NewRef(path);
    place->encoded = encoded;
    place->text = PyBytes_AS_STRING(encoded);
    place->length = PyBytes_GET_SIZE(encoded);
    place->depth = 0;
    place->installed = hot.installed;
    return place;
}

static PyObject *hooked_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *ids, *path;
    if (!PyArg_ParseTuple(args, "SU", &ids, &path))
        return NULL;
    if (PyBytes_GET_SIZE(ids) != IDS_SIZE)
        return PyErr_Format(PyExc_ValueError, "the numbers of a module take %d bytes", IDS_SIZE);
    if (backward.hook == NULL)
        return PyErr_Format(PyExc_RuntimeError, "no graphs are hooked");
    Hooked *hooked = (Hooked *)type->tp_alloc(type, 0);
    if (hooked == NULL)
        return NULL;
    PyObject *like = Py_NewRef(backward.hook);
    hooked->place = new_place(ids, path);
    if (hooked->place != NULL) {
        hooked->starts = hooks_of(like, hooked->place, call_start);
        hooked->ends = hooks_of(like, hooked->place, call_end);
    }
    Py_DECREF(like);
    if (hooked->starts == NULL || hooked->ends == NULL)
        Py_CLEAR(hooked);
    return (PyObject *)hooked;
}

static void hooked_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Hooked *)self)->place);
    Py_XDECREF(((Hooked *)self)->starts);
    Py_XDECREF(((Hooked *)self)->ends);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *hooked_ids(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((Hooked *)self)->place->ids);
}

static PyObject *hooked_path(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((Hooked *)self)->place->path);
}

static PyGetSetDef hooked_getset[] = {
    {"ids", hooked_ids, NULL, "The numbers of its name, class and root class.", NULL},
    {"path", hooked_path, NULL, "Its name, told apart from those in other roots.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot hooked_slots[] = {
    {Py_tp_doc, "A module whose backward pass is recorded."},
    {Py_tp_new, hooked_new},
    {Py_tp_dealloc, hooked_dealloc},
    {Py_tp_getset, hooked_getset},
    {0, NULL},
};

static PyType_Spec hooked_spec = {
    "probing.ring._native.Hooked", sizeof(Hooked), 0, Py_TPFLAGS_DEFAULT, hooked_slots};

int add_backward_types(PyObject *module)
{
    name_grad_fn = PyUnicode_InternFromString("grad_fn");
    name_hooks = PyUnicode_InternFromString("_backward_hooks");
    name_register = PyUnicode_InternFromString("_register_hook_dict");
    name_sequence_nr = PyUnicode_InternFromString("_sequence_nr");
    zero = PyLong_FromLong(0);
    place_type = (PyTypeObject *)PyType_FromSpec(&place_spec);
    hooked_type = (PyTypeObject *)PyType_FromSpec(&hooked_spec);
    if (name_grad_fn == NULL || name_hooks == NULL || name_register == NULL
        || name_sequence_nr == NULL || zero == NULL || place_type == NULL
        || hooked_type == NULL)
        return -1;
    return PyModule_AddType(module, hooked_type);
}
