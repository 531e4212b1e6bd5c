/* The micro-batches of the step in progress, in C: how large each is, its losses, and its row.
 *
 * Rules of this file: agent/sources/steps/rows/step_batches.py does the same in Python and says what
 * is meant; a test compares the two. Used under the interpreter lock, by the training thread only;
 * but Python that it calls may come back here: what is worked on is held meanwhile. */

#include "_native.h"

#define MOST_CALLS 256
#define MOST_COLUMNS 64
#define MOST_LOSSES (1 << 15)
#define FAILED_STATE 2 /* FAILED of format.py */

/* A number that may not be known. */
typedef struct {
    int64_t value;
    char is_known;
} Maybe;

/* What a call is given: the sizes of its first tensor, as a tuple, or NULL. */
typedef struct {
    PyObject *shape;
    Maybe samples, tokens;
} Size;

/* A micro-batch, as MicroBatch has it. */
typedef struct {
    PyObject *losses, *by_function; /* a list, and a tuple or NULL */
    Size given;                     /* of the call that tells how large it is */
    Maybe samples, tokens, elements;
    int64_t others[2]; /* samples and tokens of the same root's calls behind it */
    int64_t started_ns, before_ns[PHASE_COUNT];
    uint64_t word;
    PyObject *root; /* its identity, a number; NULL before any */
    int state;
    char is_given, trains, is_unsure, has_call, has_pass;
} Batch;

/* Samples or tokens of a step. */
typedef struct {
    Maybe sum, dropped;
} Sum;

/* Phases, each with the place of its column. */
typedef struct {
    int count, columns[PHASE_COUNT][2];
} Columns;

enum { DURATION, SAMPLES, TOKENS, ELEMENTS, LOSS_PLACE, PLACES };
/* What a step's end fills in, by its places: as StepBatches.END has them. */
enum { END_DURATION, END_BYTES, END_OPTIMIZER, END_LR, END_MODEL, END_BATCHES, END_STEPS,
       END_SAMPLES, END_OTHER, END_PLACES };
/* What is known of a step at its end, as StepEnd has it. */
enum { ENDED_TOOK, ENDED_BYTES, ENDED_OPTIMIZER, ENDED_LR, ENDED_MODEL, ENDED_MODELS, ENDED_FIELDS };

typedef struct {
    PyObject_HEAD
    PyObject *phases, *memory, *losses;
    PyObject *ring, *open_row, *reopen_row, *close_row, *late, *nulls;
    PyObject *plain, *number, *told_of, *add_losses;
    Batch *now, *last;
    Sum samples, tokens;
    long long step, thread_id, count, dropped;
    uint64_t spare; /* the row of one that has turned out to be none; 0 for none */
    Py_ssize_t places[PLACES];
    Columns columns;
    Py_ssize_t end_places[END_PLACES];
    Columns end_columns;
    /* Calls of one root that no backward pass has come for yet, as CallsAhead has them. */
    PyObject *ahead[MOST_CALLS], *ahead_root;
    int first_ahead, count_ahead;
    char has_passed, has_freed;
} Batches;

static const Maybe unknown = {0, 0};

static Maybe known(int64_t value)
{
    return (Maybe){value, 1};
}

/* --- what a call is given --- */

static int read_maybe(PyObject *object, Maybe *number)
{
    *number = unknown;
    if (Py_IsNone(object))
        return 0;
    int64_t value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred())
        return -1;
    *number = known(value);
    return 0;
}

/* Reads (sizes, samples, tokens); the sizes are borrowed. */
static int read_size(PyObject *object, Size *size)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != 3) {
        PyErr_SetString(PyExc_TypeError, "a size is sizes, samples and tokens");
        return -1;
    }
    PyObject *shape = PyTuple_GET_ITEM(object, 0);
    size->shape = PyTuple_Check(shape) ? shape : NULL;
    return read_maybe(PyTuple_GET_ITEM(object, 1), &size->samples) != 0
            || read_maybe(PyTuple_GET_ITEM(object, 2), &size->tokens) != 0
        ? -1
        : 0;
}

static int dimension(PyObject *shape, Py_ssize_t at, int64_t *length)
{
    *length = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, at));
    return *length == -1 && PyErr_Occurred() ? -1 : 0;
}

static int count_elements(PyObject *shape, Maybe *elements)
{
    int64_t product = 1, length;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(shape); at++) {
        if (dimension(shape, at, &length) != 0)
            return -1;
        if (__builtin_mul_overflow(product, length, &product)) {
            PyErr_SetString(PyExc_OverflowError, "more elements than a column holds");
            return -1;
        }
    }
    *elements = known(product);
    return 0;
}

/* --- a micro-batch --- */

static void free_batch(Batch *batch)
{
    if (batch == NULL)
        return;
    Py_XDECREF(batch->losses);
    Py_XDECREF(batch->by_function);
    Py_XDECREF(batch->given.shape);
    Py_XDECREF(batch->root);
    PyMem_Free(batch);
}

/* Puts a micro-batch, or none, in the place of another, which is let go of last. */
static void put_batch(Batch **place, Batch *batch)
{
    Batch *before = *place;
    *place = batch;
    free_batch(before);
}

static void give(Batch *batch, const Size *size)
{
    PyObject *before = batch->given.shape;
    batch->is_given = size != NULL;
    batch->given = size == NULL ? (Size){NULL, unknown, unknown} : *size;
    Py_XINCREF(batch->given.shape);
    Py_XDECREF(before);
}

/* Who knows first is believed where the call that tells does not know, or has failed. */
static void seen(Batch *batch, Maybe samples, Maybe tokens)
{
    if (batch->is_unsure && samples.is_known) {
        batch->samples = samples;
        batch->tokens = tokens;
        batch->is_unsure = 0;
        give(batch, NULL);
        batch->others[0] = batch->others[1] = 0;
    }
    if (!batch->samples.is_known)
        batch->samples = samples;
    if (!batch->tokens.is_known)
        batch->tokens = tokens;
}

/* Whether two identities are the same. */
static int is_same(PyObject *root, PyObject *other)
{
    if (root == NULL || other == NULL)
        return root == other;
    return PyObject_RichCompareBool(root, other, Py_EQ);
}

/* A root is called, by its identity, or by NULL for that of a call made ahead. */
static int call_in(Batch *batch, PyObject *root, const Size *size, int trains)
{
    seen(batch, size->samples, size->tokens);
    batch->has_call = 1;
    if (!batch->is_given || (trains && !batch->trains)) {
        give(batch, size);
        Py_XINCREF(root);
        Py_XSETREF(batch->root, root);
        batch->trains = (char)trains;
        return size->shape == NULL ? 0 : count_elements(size->shape, &batch->elements);
    }
    int is_again = trains ? is_same(root, batch->root) : 0;
    if (is_again < 0)
        return -1;
    if (is_again) {
        batch->others[0] += size->samples.value;
        batch->others[1] += size->tokens.value;
    }
    if (batch->elements.is_known || size->shape == NULL)
        return 0;
    return count_elements(size->shape, &batch->elements);
}

/* Whether the calls had all samples that were known before; -1 where Python raised. */
static int is_all(const Batch *batch)
{
    const Size *given = &batch->given;
    int64_t known_before = batch->samples.value, first, second, samples = given->samples.value;
    if (samples + batch->others[0] == known_before)
        return 1;
    Py_ssize_t dimensions = PyTuple_GET_SIZE(given->shape);
    if (dimensions == 0 || dimension(given->shape, 0, &first) != 0)
        return PyErr_Occurred() ? -1 : 0;
    if (samples != first) /* mapped over */
        return samples == first * known_before;
    if (dimensions < 2)
        return 0;
    if (dimension(given->shape, 1, &second) != 0)
        return -1;
    int are_tokens = given->tokens.is_known && batch->tokens.is_known
        && given->tokens.value == batch->tokens.value;
    return second == known_before && (dimensions > 2 || are_tokens);
}

/* All calls are known: what the model was given counts, not the batch it came from. */
static int settle(Batch *batch)
{
    if (!batch->is_given)
        return 0;
    Maybe samples = batch->given.samples, tokens = batch->given.tokens;
    if (samples.is_known
        && !(batch->samples.is_known && samples.value == batch->samples.value)) {
        int all = batch->given.shape == NULL ? 0 : is_all(batch);
        if (all != 0)
            return all < 0 ? -1 : 0;
        int64_t rest = batch->samples.value - samples.value, others = batch->others[0];
        batch->samples = samples;
        if (0 < others && others < rest) { /* in parts, and a rest left out */
            batch->samples.value += others;
            if (tokens.is_known)
                batch->tokens = known(tokens.value + batch->others[1]);
            return 0;
        }
    }
    int is_told = batch->tokens.is_known
        && tokens.value + batch->others[1] == batch->tokens.value;
    if (tokens.is_known && !is_told)
        batch->tokens = tokens;
    return 0;
}

/* --- calls ahead --- */

/* Lets go of the last of them. */
static void drop_ahead(Batches *self)
{
    PyObject *size = self->ahead[(self->first_ahead + --self->count_ahead) % MOST_CALLS];
    Py_DECREF(size); /* numbers only: runs no code */
}

static void forget_ahead(Batches *self)
{
    while (self->count_ahead > 0)
        drop_ahead(self);
}

static int call_ahead(Batches *self, PyObject *root, PyObject *size)
{
    int is_again = is_same(root, self->ahead_root);
    if (is_again < 0)
        return -1;
    if (!is_again)
        forget_ahead(self);
    Py_INCREF(root);
    Py_XSETREF(self->ahead_root, root);
    self->has_passed = self->has_freed = 0;
    if (self->count_ahead == MOST_CALLS) {
        Py_DECREF(self->ahead[self->first_ahead]);
        self->first_ahead = (self->first_ahead + 1) % MOST_CALLS;
        self->count_ahead--;
    }
    self->ahead[(self->first_ahead + self->count_ahead++) % MOST_CALLS] = Py_NewRef(size);
    return 0;
}

/* A backward pass begins: what the call was given that it is of, a new reference, if that is another
 * one than of the pass before and no call lies between the two; else NULL. */
static PyObject *pass_ahead(Batches *self, int keeps_graph)
{
    PyObject *size = NULL;
    int is_other = self->has_freed;
    if ((is_other || !self->has_passed) && self->count_ahead > 0) {
        size = self->ahead[self->first_ahead];
        self->first_ahead = (self->first_ahead + 1) % MOST_CALLS;
        self->count_ahead--;
    }
    self->has_passed = 1;
    self->has_freed = !keeps_graph;
    if (!is_other)
        Py_CLEAR(size);
    return size;
}

/* --- sums of a step --- */

static void add_to(Maybe *sum, Maybe more)
{
    if (more.is_known)
        *sum = known((sum->is_known ? sum->value : 0) + more.value);
}

static void drop(Sum *sum)
{
    add_to(&sum->dropped, sum->sum);
    sum->sum = unknown;
}

static void keep(Sum *sum)
{
    add_to(&sum->sum, sum->dropped);
    sum->dropped = unknown;
}

static void begin_sums(Batches *self)
{
    memset(&self->samples, 0, sizeof self->samples);
    memset(&self->tokens, 0, sizeof self->tokens);
}

static PyObject *told_number(const Sum *sum)
{
    Maybe told = sum->sum.is_known ? sum->sum : sum->dropped;
    return told.is_known ? PyLong_FromLongLong(told.value) : Py_NewRef(Py_None);
}

/* --- losses, as the named tuple of Python --- */

/* A loss like another one, but for one or two of its fields, which are stolen. */
static PyObject *loss_like(
    PyObject *other, int place, PyObject *value, int second_place, PyObject *second)
{
    PyObject *items = value == NULL || second == NULL ? NULL : PyTuple_New(LOSS_FIELDS);
    if (items == NULL) {
        Py_XDECREF(value);
        Py_XDECREF(second);
        return NULL;
    }
    for (int at = 0; at < LOSS_FIELDS; at++)
        PyTuple_SET_ITEM(
            items, at,
            at == place              ? value
                : at == second_place ? second
                                     : Py_NewRef(PyTuple_GET_ITEM(other, at)));
    PyObject *args = PyTuple_Pack(1, items);
    PyObject *loss = args == NULL ? NULL : PyTuple_Type.tp_new(Py_TYPE(other), args, NULL);
    Py_XDECREF(args);
    Py_DECREF(items);
    return loss;
}

static int is_loss(const Batches *self, PyObject *object)
{
    return is_loss_of(Py_TYPE(self->plain), object);
}

/* Whether a micro-batch counts: one of its passes has made a gradient of what is trained. */
static int is_trained(const Batches *self, const Batch *batch)
{
    Py_ssize_t count = PyList_GET_SIZE(batch->losses);
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *loss = PyList_GET_ITEM(batch->losses, at);
        if (is_loss(self, loss) && PyTuple_GET_ITEM(loss, LOSS_TRAINS) == Py_True)
            return 1;
    }
    return count == 0;
}

/* --- the row --- */

/* Puts a value, which is stolen, among the columns; -1 where Python raised. */
static int put_cell(PyObject **cells, Py_ssize_t place, PyObject *value)
{
    if (value == NULL)
        return -1;
    Py_SETREF(cells[2 + place], value);
    return 0;
}

static int put_maybe(PyObject **cells, Py_ssize_t place, Maybe value)
{
    return value.is_known ? put_cell(cells, place, PyLong_FromLongLong(value.value)) : 0;
}

static int put_phases(Batches *self, const Batch *batch, const int64_t *spent, PyObject **cells)
{
    const Columns *columns = &self->columns;
    for (int at = 0; at < columns->count; at++) {
        int phase = columns->columns[at][0];
        int64_t ns = spent[phase] - batch->before_ns[phase];
        if (ns != 0
            && put_cell(cells, columns->columns[at][1], PyFloat_FromDouble((double)ns * 1e-9)) != 0)
            return -1;
    }
    return 0;
}

/* Puts a loss that is here; returns whether it is not: -1 where Python raised. */
static int put_loss(Batches *self, PyObject *losses, PyObject **cells)
{
    if (PyList_GET_SIZE(losses) != 1)
        return 0;
    PyObject *loss = PyList_GET_ITEM(losses, 0);
    if (!is_loss(self, loss))
        return 1;
    PyObject *here;
    int is_here = here_of(PyTuple_GET_ITEM(loss, LOSS_NUMBER), self->number, &here);
    if (is_here < 0)
        return -1;
    return is_here ? put_cell(cells, self->places[LOSS_PLACE], here) : 1;
}

/* The loss that is on its way, if there is one, with its place: a new list. */
static PyObject *loss_to_come(Batches *self, PyObject *losses)
{
    if (PyList_GET_SIZE(losses) != 1)
        return PyList_New(0);
    PyObject *number = PySequence_GetItem(PyList_GET_ITEM(losses, 0), LOSS_NUMBER);
    return number == NULL ? NULL : Py_BuildValue("[(nN)]", self->places[LOSS_PLACE], number);
}

/* Completes the row of a micro-batch. */
static int close_batch(Batches *self, Batch *batch, int64_t now, PyObject *losses)
{
    const int64_t *spent = spent_in(self->phases);
    Py_ssize_t count = PyTuple_GET_SIZE(self->nulls);
    PyObject *cells[2 + MOST_COLUMNS];
    for (Py_ssize_t at = 0; at < count; at++)
        cells[2 + at] = Py_NewRef(PyTuple_GET_ITEM(self->nulls, at));
    cells[0] = PyLong_FromUnsignedLongLong(batch->word);
    cells[1] = PyLong_FromLong(batch->state);
    int told = cells[0] == NULL || cells[1] == NULL || spent == NULL
            || put_phases(self, batch, spent, cells) != 0
            || put_cell(
                   cells, self->places[DURATION], PyLong_FromLongLong(now - batch->started_ns))
                != 0
            || put_maybe(cells, self->places[SAMPLES], batch->samples) != 0
            || put_maybe(cells, self->places[TOKENS], batch->tokens) != 0
            || put_maybe(cells, self->places[ELEMENTS], batch->elements) != 0
        ? -1
        : put_loss(self, losses, cells);
    if (told == 0) {
        told = close_at_once(self->close_row, cells, count);
    } else if (told > 0) {
        PyObject *later = loss_to_come(self, losses);
        told = later == NULL ? -1 : close_later(self->late, self->ring, cells, count, later);
        Py_XDECREF(later);
    }
    for (Py_ssize_t at = 0; at < count + 2; at++)
        Py_XDECREF(cells[at]);
    return told;
}

/* The losses that a micro-batch tells of, a new list of them. */
static PyObject *losses_told(Batches *self, Batch *batch)
{
    if (PyList_GET_SIZE(batch->losses) == 1
        || (PyList_GET_SIZE(batch->losses) == 0 && batch->by_function == NULL))
        return Py_NewRef(batch->losses);
    PyObject *by_function = batch->by_function == NULL ? PyTuple_New(0)
                                                       : Py_NewRef(batch->by_function);
    PyObject *args[] = {batch->losses, by_function};
    PyObject *told = by_function == NULL ? NULL : PyObject_Vectorcall(self->told_of, args, 2, NULL);
    Py_XDECREF(by_function);
    if (told != NULL && !PyList_CheckExact(told)) {
        PyErr_SetString(PyExc_TypeError, "losses are a list");
        Py_CLEAR(told);
    }
    return told;
}

static int add_told(Batches *self, PyObject *more)
{
    Py_ssize_t before = PyList_GET_SIZE(self->losses);
    if (before + PyList_GET_SIZE(more) <= MOST_LOSSES)
        return PyList_SetSlice(self->losses, before, before, more);
    PyObject *dropped = PyObject_CallFunction(
        self->add_losses, "OOL", self->losses, more, self->dropped);
    long long number = dropped == NULL ? -1 : PyLong_AsLongLong(dropped);
    Py_XDECREF(dropped);
    if (PyErr_Occurred())
        return -1;
    self->dropped = number;
    return 0;
}

static int tell_memory(Batches *self)
{
    if (self->memory == NULL || Py_IsNone(self->memory))
        return 0;
    PyObject *memory = Py_NewRef(self->memory);
    PyObject *done = PyObject_CallMethod(memory, "batch_changed", NULL);
    Py_DECREF(memory);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

/* Ends a micro-batch that is no longer in progress. */
static int end_batch(Batches *self, Batch *batch, int64_t now)
{
    self->count++;
    if (tell_memory(self) != 0 || settle(batch) != 0)
        return -1;
    if (is_trained(self, batch)) {
        add_to(&self->samples.sum, batch->samples);
        add_to(&self->tokens.sum, batch->tokens);
    }
    PyObject *more = losses_told(self, batch);
    int told = more == NULL ? -1 : close_batch(self, batch, now, more);
    if (told == 0)
        told = add_told(self, more);
    Py_XDECREF(more);
    return told;
}

/* --- the methods --- */

/* Whether it has not been taken apart by the collector; else an exception is raised. */
static int is_whole(const Batches *self)
{
    if (self->phases != NULL)
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "the recording has ended");
    return 0;
}

static int takes(const Batches *self, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "it takes %zd values, not %zd", wanted, given);
        return 0;
    }
    return is_whole(self);
}

static PyObject *none_unless(int failed)
{
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *batches_begin(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    if (!takes(self, given, 2))
        return NULL;
    long long step = PyLong_AsLongLong(args[0]), thread_id = PyLong_AsLongLong(args[1]);
    PyObject *losses = PyErr_Occurred() ? NULL : PyList_New(0);
    if (losses == NULL)
        return NULL;
    self->step = step;
    self->thread_id = thread_id;
    self->count = self->dropped = 0;
    begin_sums(self);
    forget_ahead(self);
    self->has_passed = self->has_freed = 0;
    Py_CLEAR(self->ahead_root);
    Py_SETREF(self->losses, losses);
    put_batch(&self->last, NULL);
    Py_RETURN_NONE;
}

static PyObject *batches_began(PyObject *object, PyObject *now)
{
    Batches *self = (Batches *)object;
    int64_t now_ns = PyLong_AsLongLong(now);
    if (PyErr_Occurred() || !is_whole(self) || tell_memory(self) != 0)
        return NULL;
    const int64_t *spent = spent_in(self->phases);
    Batch *batch = spent == NULL ? NULL : PyMem_Calloc(1, sizeof *batch);
    if (batch == NULL)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    memcpy(batch->before_ns, spent, sizeof batch->before_ns);
    batch->state = DONE;
    batch->started_ns = now_ns;
    batch->losses = PyList_New(0);
    uint64_t spare = self->spare;
    self->spare = 0;
    PyObject *done = NULL;
    if (batch->losses != NULL && spare == 0)
        done = PyObject_CallFunction(
            self->open_row, "LLLL", now_ns, self->step, self->count, self->thread_id);
    else if (batch->losses != NULL)
        done = PyObject_CallFunction(
            self->reopen_row, "KLLLL", spare, now_ns, self->step, self->count, self->thread_id);
    batch->word = done == NULL || spare != 0 ? spare : PyLong_AsUnsignedLongLong(done);
    Py_XDECREF(done);
    if (done == NULL || PyErr_Occurred()) {
        free_batch(batch);
        return NULL;
    }
    put_batch(&self->now, batch);
    Py_RETURN_NONE;
}

static PyObject *batches_ended(PyObject *object, PyObject *now)
{
    Batches *self = (Batches *)object;
    int64_t now_ns = PyLong_AsLongLong(now);
    if (PyErr_Occurred() || !is_whole(self))
        return NULL;
    Batch *batch = self->now;
    if (batch == NULL)
        Py_RETURN_NONE;
    self->now = NULL;
    if (self->count && !(batch->has_pass || batch->has_call || PyList_GET_SIZE(batch->losses))) {
        self->spare = batch->word; /* what it was fetched for comes in the next step */
        free_batch(batch);
        Py_RETURN_NONE;
    }
    int told = end_batch(self, batch, now_ns);
    put_batch(&self->last, batch);
    return none_unless(told);
}

static PyObject *batches_take_back(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    if (self->now != NULL) {
        self->spare = self->now->word;
        put_batch(&self->now, NULL);
    }
    Py_RETURN_NONE;
}

static PyObject *batches_resume(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    Batch *last = self->last;
    if (last == NULL)
        Py_RETURN_FALSE;
    self->last = NULL;
    begin_sums(self);
    self->count--;
    put_batch(&self->now, last);
    Py_RETURN_TRUE;
}

static PyObject *batches_abandon(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    put_batch(&((Batches *)object)->now, NULL);
    Py_RETURN_NONE;
}

static PyObject *batches_came(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    Maybe samples, tokens;
    if (!takes(self, given, 2) || read_maybe(args[0], &samples) != 0
        || read_maybe(args[1], &tokens) != 0)
        return NULL;
    if (self->now != NULL)
        seen(self->now, samples, tokens);
    Py_RETURN_NONE;
}

static PyObject *batches_called(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    Size size;
    if (!takes(self, given, 3) || read_size(args[1], &size) != 0)
        return NULL;
    int trains = PyObject_IsTrue(args[2]);
    if (trains < 0 || (self->now != NULL && call_in(self->now, args[0], &size, trains) != 0))
        return NULL;
    return none_unless(trains ? call_ahead(self, args[0], args[1]) : 0);
}

static PyObject *batches_call_failed(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    if (self->count_ahead > 0)
        drop_ahead(self);
    if (self->now != NULL) { /* it may be done again, in smaller parts */
        self->now->is_unsure = 1;
        self->now->elements = unknown;
    }
    Py_RETURN_NONE;
}

/* A pass of a call that was made ahead begins. */
static int begin_ahead(Batches *self, PyObject *object, int64_t now)
{
    Size size;
    if (read_size(object, &size) != 0)
        return -1;
    if (self->now != NULL && self->now->has_pass) {
        self->now->others[0] = self->now->others[1] = 0;
        if (finish_batch_of(self->phases) != 0)
            return -1;
    }
    if (ensure_batch_of(self->phases, now) != 0)
        return -1;
    return self->now == NULL ? 0 : call_in(self->now, NULL, &size, 1);
}

static PyObject *batches_pass_begins(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    if (!takes(self, given, 3))
        return NULL;
    int64_t now = PyLong_AsLongLong(args[0]);
    int trains = PyObject_IsTrue(args[1]), keeps_graph = PyObject_IsTrue(args[2]);
    if (PyErr_Occurred())
        return NULL;
    PyObject *size = trains ? pass_ahead(self, keeps_graph) : NULL;
    if (size == NULL)
        return none_unless(ensure_batch_of(self->phases, now));
    int told = begin_ahead(self, size, now);
    Py_DECREF(size);
    return none_unless(told);
}

static PyObject *batches_evaluation_begins(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    const Batch *batch = self->now;
    if (!is_whole(self))
        return NULL;
    if (batch == NULL || (batch->has_call && !batch->has_pass))
        Py_RETURN_NONE;
    if (!batch->has_pass) {
        self->spare = batch->word;
        put_batch(&self->now, NULL);
    }
    return none_unless(finish_batch_of(self->phases));
}

static PyObject *batches_lost(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    if (!takes(self, given, 2))
        return NULL;
    if (self->now == NULL || Py_IsNone(args[0]))
        Py_RETURN_NONE;
    PyObject *losses = Py_NewRef(self->now->losses);
    PyObject *loss = loss_like(
        self->plain, LOSS_NUMBER, Py_NewRef(args[0]), LOSS_SHARE, Py_NewRef(args[1]));
    int told = loss == NULL ? -1 : PyList_Append(losses, loss);
    Py_XDECREF(loss);
    Py_DECREF(losses);
    return none_unless(told);
}

static PyObject *batches_lost_in_function(PyObject *object, PyObject *number)
{
    Batches *self = (Batches *)object;
    if (!is_whole(self))
        return NULL;
    if (self->now == NULL || Py_IsNone(number))
        Py_RETURN_NONE;
    PyObject *loss = loss_like(
        self->plain, LOSS_NUMBER, Py_NewRef(number), LOSS_SHARE, Py_NewRef(Py_None));
    PyObject *one = loss == NULL ? NULL : PyTuple_Pack(1, loss);
    Py_XDECREF(loss);
    Batch *batch = self->now;
    if (one == NULL || batch == NULL) {
        Py_XDECREF(one);
        return none_unless(one == NULL);
    }
    PyObject *all = batch->by_function == NULL ? Py_NewRef(one)
                                               : PySequence_Concat(batch->by_function, one);
    Py_DECREF(one);
    if (all == NULL)
        return NULL;
    Py_XSETREF(batch->by_function, all);
    Py_RETURN_NONE;
}

static PyObject *batches_pass_failed(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    if (!is_whole(self))
        return NULL;
    if (self->now == NULL)
        Py_RETURN_NONE;
    self->now->state = FAILED_STATE;
    self->now->has_pass = 1;
    return none_unless(finish_batch_of(self->phases));
}

/* The last loss of a micro-batch is of a pass that made these gradients. */
static int note_reached(Batches *self, PyObject *losses, PyObject *optimizers, int trains)
{
    Py_ssize_t last = PyList_GET_SIZE(losses) - 1;
    if (last < 0 || !is_loss(self, PyList_GET_ITEM(losses, last)))
        return 0;
    PyObject *loss = PyList_GET_ITEM(losses, last);
    int is_known = PyObject_IsTrue(optimizers);
    if (is_known < 0)
        return -1;
    int did_train = PyTuple_GET_ITEM(loss, LOSS_TRAINS) == Py_True;
    PyObject *reached = is_known ? optimizers : PyTuple_GET_ITEM(loss, LOSS_REACHED);
    if (reached == PyTuple_GET_ITEM(loss, LOSS_REACHED) && (trains || !did_train))
        return 0;
    PyObject *told = loss_like(
        loss, LOSS_REACHED, Py_NewRef(reached), LOSS_TRAINS, PyBool_FromLong(trains && did_train));
    return told == NULL ? -1 : PyList_SetItem(losses, last, told);
}

static PyObject *batches_reached(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    Batches *self = (Batches *)object;
    if (!takes(self, given, 2))
        return NULL;
    if (self->now == NULL)
        Py_RETURN_NONE;
    int trains = PyObject_IsTrue(args[1]);
    if (trains < 0)
        return NULL;
    self->now->has_pass = 1;
    PyObject *losses = Py_NewRef(self->now->losses);
    int told = note_reached(self, losses, args[0], trains);
    Py_DECREF(losses);
    return none_unless(told);
}

static PyObject *batches_exchange(PyObject *object, PyObject *args)
{
    Batches *self = (Batches *)object;
    PyObject *losses;
    long long dropped;
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &losses, &dropped) || !is_whole(self))
        return NULL;
    if (self->now != NULL && PyList_GET_SIZE(self->now->losses) > 0
        && finish_batch_of(self->phases) != 0)
        return NULL;
    PyObject *before = Py_BuildValue("(OL)", self->losses, self->dropped);
    if (before == NULL)
        return NULL;
    Py_SETREF(self->losses, Py_NewRef(losses));
    self->dropped = dropped;
    return before;
}

static PyObject *batches_drop_losses(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    if (!is_whole(self))
        return NULL;
    self->dropped = PyList_GET_SIZE(self->losses);
    drop(&self->samples);
    drop(&self->tokens);
    Py_RETURN_NONE;
}

static PyObject *batches_keep_losses(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    self->dropped = 0;
    keep(&self->samples);
    keep(&self->tokens);
    Py_RETURN_NONE;
}

static PyObject *batches_replace_losses(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Batches *self = (Batches *)object;
    if (!is_whole(self))
        return NULL;
    self->dropped = PyList_GET_SIZE(self->losses);
    if (self->now == NULL)
        Py_RETURN_NONE;
    PyObject *losses = Py_NewRef(self->now->losses);
    int told = PyList_SetSlice(losses, 0, PyList_GET_SIZE(losses), NULL);
    Py_DECREF(losses);
    return none_unless(told);
}

/* Puts a value, which is stolen, into a list; -1 where Python raised. */
static int put_in(PyObject *closing, Py_ssize_t place, PyObject *value)
{
    return value == NULL ? -1 : PyList_SetItem(closing, place, value);
}

static int fill_phases(const Batches *self, PyObject *closing)
{
    const int64_t *spent = spent_in(self->phases);
    const Columns *columns = &self->end_columns;
    if (spent == NULL || put_in(closing, self->end_places[END_OTHER], PyFloat_FromDouble(0.0)) != 0)
        return -1;
    for (int at = 0; at < columns->count; at++) {
        int64_t ns = spent[columns->columns[at][0]];
        if (ns != 0
            && put_in(closing, columns->columns[at][1], PyFloat_FromDouble((double)ns * 1e-9)) != 0)
            return -1;
    }
    return 0;
}

/* The loss of a step, a new reference, where it is one that is here and that nothing has divided;
 * else None. */
static PyObject *plain_loss(const Batches *self)
{
    if (PyList_GET_SIZE(self->losses) != 1)
        Py_RETURN_NONE;
    PyObject *loss = PyList_GET_ITEM(self->losses, 0), *here;
    if (!is_loss(self, loss) || !Py_IsNone(PyTuple_GET_ITEM(loss, LOSS_SHARE))
        || PyObject_Size(PyTuple_GET_ITEM(loss, LOSS_PARTS)) != 0)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    int is_here = here_of(PyTuple_GET_ITEM(loss, LOSS_NUMBER), self->number, &here);
    if (is_here < 0)
        return NULL;
    return is_here ? here : Py_NewRef(Py_None);
}

static PyObject *batches_fill_end(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    static const int same[][2] = {
        {END_DURATION, ENDED_TOOK}, {END_BYTES, ENDED_BYTES}, {END_OPTIMIZER, ENDED_OPTIMIZER},
        {END_LR, ENDED_LR},         {END_MODEL, ENDED_MODELS}};
    const Batches *self = (const Batches *)object;
    if (!takes(self, given, 3))
        return NULL;
    PyObject *closing = args[0], *ended = args[1];
    if (!PyList_CheckExact(closing) || !PyTuple_Check(ended)
        || PyTuple_GET_SIZE(ended) != ENDED_FIELDS)
        return PyErr_Format(PyExc_TypeError, "no columns, or no end of a step");
    int told = fill_phases(self, closing);
    for (size_t at = 0; told == 0 && at < sizeof same / sizeof *same; at++)
        told = put_in(
            closing, self->end_places[same[at][0]],
            Py_NewRef(PyTuple_GET_ITEM(ended, same[at][1])));
    if (told == 0)
        told = put_in(closing, self->end_places[END_BATCHES], PyLong_FromLongLong(self->count));
    int has_stepped = told == 0 ? PyObject_IsTrue(args[2]) : -1;
    if (has_stepped > 0)
        told = put_in(closing, self->end_places[END_STEPS], Py_NewRef(args[2]));
    Maybe samples = self->samples.sum.is_known ? self->samples.sum : self->samples.dropped;
    if (told == 0 && has_stepped >= 0 && samples.is_known)
        told = put_in(
            closing, self->end_places[END_SAMPLES], PyLong_FromLongLong(samples.value));
    return told != 0 || has_stepped < 0 ? NULL : plain_loss(self);
}

static PyObject *batches_tokens(PyObject *object, void *Py_UNUSED(closure))
{
    return told_number(&((const Batches *)object)->tokens);
}

static PyObject *batches_number(PyObject *object, void *Py_UNUSED(closure))
{
    const Batches *self = (const Batches *)object;
    if (self->now == NULL)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(self->count);
}

static PyObject *batches_has_passes(PyObject *object, void *Py_UNUSED(closure))
{
    const Batches *self = (const Batches *)object;
    return PyBool_FromLong(self->count > 0 || (self->now != NULL && self->now->has_pass));
}

/* --- the type --- */

static int is_place(long place, Py_ssize_t count)
{
    if (place >= 0 && place < count)
        return 1;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the columns are none of a row");
    return 0;
}

/* Reads where columns are; -1 where they are none of a row of so many. */
static int read_places(PyObject *places, Py_ssize_t *read, Py_ssize_t wanted, Py_ssize_t count)
{
    if (PyTuple_GET_SIZE(places) != wanted)
        return is_place(-1, 0) - 1;
    for (Py_ssize_t at = 0; at < wanted; at++) {
        read[at] = PyLong_AsSsize_t(PyTuple_GET_ITEM(places, at));
        if (!is_place((long)read[at], count))
            return -1;
    }
    return 0;
}

static int read_columns(PyObject *columns, Columns *read, Py_ssize_t count)
{
    if (PyTuple_GET_SIZE(columns) > PHASE_COUNT)
        return is_place(-1, 0) - 1;
    read->count = (int)PyTuple_GET_SIZE(columns);
    for (int at = 0; at < read->count; at++) {
        int *column = read->columns[at];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, at), "ii", &column[0], &column[1])
            || !is_place(column[0], PHASE_COUNT) || !is_place(column[1], count))
            return -1;
    }
    return 0;
}

/* Makes the clock that tells when a micro-batch begins and ends, and takes what writes its rows. */
static int make_ways(Batches *self, PyObject *phases)
{
    self->open_row = PyObject_GetAttrString(self->ring, "open_row");
    self->reopen_row = PyObject_GetAttrString(self->ring, "reopen_row");
    self->close_row = PyObject_GetAttrString(self->ring, "close_row");
    PyObject *began = PyObject_GetAttrString((PyObject *)self, "began");
    PyObject *ended = PyObject_GetAttrString((PyObject *)self, "ended");
    self->losses = PyList_New(0);
    if (self->open_row && self->reopen_row && self->close_row && began && ended && self->losses)
        self->phases = PyObject_CallFunctionObjArgs(
            (PyObject *)phases_type, began, ended, phases, NULL);
    Py_XDECREF(began);
    Py_XDECREF(ended);
    return self->phases == NULL ? -1 : 0;
}

static PyObject *batches_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ring", "late", "nulls", "phases", "columns", "places", "end_columns",
                            "end_places", "plain", "number", "told_of", "add_losses", NULL};
    PyObject *ring, *late, *nulls, *phases, *columns, *places, *ends, *end_places;
    PyObject *plain, *number, *told_of, *add;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "$OOO!OO!O!O!O!O!OOO", names, &ring, &late, tuple, &nulls, &phases, tuple,
            &columns, tuple, &places, tuple, &ends, tuple, &end_places, tuple, &plain, &number,
            &told_of, &add))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(nulls);
    if (PyTuple_GET_SIZE(plain) != LOSS_FIELDS || count > MOST_COLUMNS)
        return PyErr_Format(PyExc_ValueError, "losses or rows are others than the C part knows");
    Batches *self = (Batches *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->memory = Py_NewRef(Py_None);
    self->ring = Py_NewRef(ring);
    self->late = Py_NewRef(late);
    self->nulls = Py_NewRef(nulls);
    self->plain = Py_NewRef(plain);
    self->number = Py_NewRef(number);
    self->told_of = Py_NewRef(told_of);
    self->add_losses = Py_NewRef(add);
    if (read_places(places, self->places, PLACES, count) == 0
        && read_columns(columns, &self->columns, count) == 0
        && read_places(end_places, self->end_places, END_PLACES, INT16_MAX) == 0
        && read_columns(ends, &self->end_columns, INT16_MAX) == 0 && make_ways(self, phases) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int visit_batch(const Batch *batch, visitproc visit, void *arg)
{
    if (batch != NULL) {
        Py_VISIT(batch->losses);
        Py_VISIT(batch->by_function);
        Py_VISIT(batch->given.shape);
        Py_VISIT(batch->root);
    }
    return 0;
}

static int batches_traverse(PyObject *object, visitproc visit, void *arg)
{
    Batches *self = (Batches *)object;
    PyObject *kept[] = {
        (PyObject *)Py_TYPE(object), self->phases, self->memory, self->losses, self->ring,
        self->open_row, self->reopen_row, self->close_row, self->late, self->nulls, self->plain,
        self->number, self->told_of, self->add_losses, self->ahead_root};
    for (size_t at = 0; at < sizeof kept / sizeof *kept; at++)
        Py_VISIT(kept[at]);
    for (int at = 0; at < self->count_ahead; at++)
        Py_VISIT(self->ahead[(self->first_ahead + at) % MOST_CALLS]);
    int told = visit_batch(self->now, visit, arg);
    return told != 0 ? told : visit_batch(self->last, visit, arg);
}

/* What is still called behind it raises: see `is_whole`. */
static int batches_clear(PyObject *object)
{
    Batches *self = (Batches *)object;
    Py_CLEAR(self->phases);
    put_batch(&self->now, NULL);
    put_batch(&self->last, NULL);
    forget_ahead(self);
    PyObject **kept[] = {
        &self->memory, &self->losses, &self->ring, &self->open_row, &self->reopen_row,
        &self->close_row, &self->late, &self->nulls, &self->plain, &self->number, &self->told_of,
        &self->add_losses, &self->ahead_root};
    for (size_t at = 0; at < sizeof kept / sizeof *kept; at++)
        Py_CLEAR(*kept[at]);
    return 0;
}

static void batches_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    batches_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

#define FAST(name, doc) \
    {#name, (PyCFunction)(void (*)(void))batches_##name, METH_FASTCALL, doc}
#define PLAIN(name, doc) {#name, batches_##name, METH_NOARGS, #name "($self, /)\n--\n\n" doc}

static PyMethodDef batches_methods[] = {
    FAST(begin, "begin($self, step, thread_id, /)\n--\n\nA step begins."),
    {"began", batches_began, METH_O, "began($self, now_ns, /)\n--\n\nA micro-batch begins."},
    {"ended", batches_ended, METH_O, "ended($self, now_ns, /)\n--\n\nIt has ended."},
    PLAIN(take_back, "The micro-batch in progress has turned out to be none."),
    PLAIN(resume, "The micro-batch that has ended last is not over."),
    PLAIN(abandon, "Recording stops: the row in progress stays open."),
    FAST(came, "came($self, samples, tokens, /)\n--\n\nA batch was waited for."),
    FAST(called, "called($self, root, size, trains, /)\n--\n\nA root is called in the step."),
    PLAIN(call_failed, "It has ended by an exception."),
    FAST(pass_begins,
         "pass_begins($self, now_ns, trains, keeps_graph, /)\n--\n\nA backward pass begins."),
    PLAIN(evaluation_begins, "What is called now is no part of the step."),
    FAST(lost, "lost($self, loss, share, /)\n--\n\nA backward pass begins with a loss."),
    {"lost_in_function", batches_lost_in_function, METH_O,
     "lost_in_function($self, loss, /)\n--\n\nThe same inside of a function that torch transforms."},
    PLAIN(pass_failed, "A backward pass has ended by an exception."),
    FAST(reached, "reached($self, optimizers, trains, /)\n--\n\nA backward pass has ended."),
    {"exchange", batches_exchange, METH_VARARGS,
     "exchange($self, losses, dropped, /)\n--\n\nAnother training goes on, in the same step."},
    FAST(fill_end,
         "fill_end($self, closing, ended, optimizer_steps, /)\n--\n\n"
         "Fill in what is known of the step as it ends; returns a plain loss that is here."),
    PLAIN(drop_losses, "The gradients of all passes of the step so far were thrown away."),
    PLAIN(keep_losses, "They are used after all."),
    PLAIN(replace_losses, "The losses of the step so far were parts of the one that comes now."),
    {NULL, NULL, 0, NULL},
};

static PyMemberDef batches_members[] = {
    {"phases", T_OBJECT, offsetof(Batches, phases), READONLY, "The clock of the phases."},
    {"memory", T_OBJECT, offsetof(Batches, memory), 0, "Is told where one begins or ends."},
    {"losses", T_OBJECT, offsetof(Batches, losses), READONLY, "Those of the step so far."},
    {"dropped", T_LONGLONG, offsetof(Batches, dropped), READONLY, "How many of them are gone."},
    {"count", T_LONGLONG, offsetof(Batches, count), READONLY, "How many have ended in the step."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef batches_getset[] = {
    {"micro_batch", batches_number, NULL, "The number of that in progress; None for none.", NULL},
    {"tokens", batches_tokens, NULL, "How many of the step so far; None for nothing known.", NULL},
    {"has_passes", batches_has_passes, NULL, "Whether a pass of the step has ended.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot batches_slots[] = {
    {Py_tp_doc, "The micro-batches of the step in progress."},
    {Py_tp_new, batches_new},
    {Py_tp_traverse, batches_traverse},
    {Py_tp_clear, batches_clear},
    {Py_tp_dealloc, batches_dealloc},
    {Py_tp_methods, batches_methods},
    {Py_tp_members, batches_members},
    {Py_tp_getset, batches_getset},
    {0, NULL},
};

PyType_Spec batches_spec = {
    "probing.ring._native.StepBatches", sizeof(Batches), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, batches_slots};
