package incremental

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"reflect"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// A recent is what a session knows of a file beyond what the cache file had when it
// was loaded.
type recent struct {
	rec   cachefile.Record
	sum   *[16]byte // of the content, nil if it is unknown
	state recentState
	due   time.Time // when an outcome that is not kept yet may be kept; zero if there is no such time
	value any       // for outcomeHeld the result, for outcomeFailed the text of the error
}

type recentState int

const (
	recentKept      recentState = iota // the store has it too, and will have it after the next load
	recentUnsettled                    // too new to be kept: equal metadata proves nothing yet
	recentHeld                         // known as long as the session lives: fn has failed, or its result cannot be encoded
)

// Outcomes that are never saved.
const (
	outcomeFailed  cachefile.Outcome = 100 + iota // fn has failed
	outcomeHeld                                   // the result cannot be encoded
	outcomeDeleted                                // there is no outcome: the record in the store is of a file that was deleted
)

// errStillFails stands for a failure of fn that is known: fn was not called, because the file has not changed since
// fn failed, or fn was called and failed as before.
var errStillFails = errors.New("incremental: as before")

func (e *recent) view() cachefile.View {
	return cachefile.View{ID: e.rec.ID, Outcome: e.rec.Outcome, Result: e.rec.Result}
}

func deleted() *recent { return &recent{rec: cachefile.Record{Outcome: outcomeDeleted}} }

func (e *recent) isDeleted() bool { return e != nil && e.rec.Outcome == outcomeDeleted }

func (e *recent) isUnsettled() bool { return e != nil && e.state == recentUnsettled }

// isSame reports whether fn would get a file with the same content and mode as the one it got for e.
func (e *recent) isSame(id cachefile.Identity, sum *[16]byte) bool {
	return e != nil && e.sum != nil && sum != nil && *e.sum == *sum && e.rec.ID.Mode == id.Mode
}

// isKnown reports whether a call of fn gave rec, the outcome that e has already, and nothing shows that the file has
// changed in between: its metadata is the same, or cannot be compared. Value is as in e.
func (e *recent) isKnown(rec cachefile.Record, value any) bool {
	return e != nil && isSameID(e.rec.ID, rec.ID) && e.rec.Outcome == rec.Outcome && bytes.Equal(e.rec.Result, rec.Result) && reflect.DeepEqual(e.value, value)
}

// isStill reports whether e, an unsettled outcome without a sum of the content, still stands for the file rel: its metadata
// is still id, and the hook IsStill says that nothing has happened to it since.
func (r *run[T]) isStill(rel string, e *recent, id cachefile.Identity) bool {
	still := core.Hooks(&r.opts).IsStill
	return still != nil && e.isUnsettled() && e.sum == nil && isSameID(e.rec.ID, id) && still(rel)
}

// isSameID compares the identities that two looks gave. On Linux, the metadata of an open file has no birth time.
func isSameID(a, b cachefile.Identity) bool {
	if a.BirthTime == 0 || b.BirthTime == 0 {
		a.BirthTime, b.BirthTime = 0, 0
	}
	return a == b
}

// sumOf returns the sum of the content of f if a session will compare it: because f is too
// new to be kept, or was so before. Otherwise it returns nil. It is called before fn, which
// may overwrite the content.
func (r *run[T]) sumOf(f *fileproc.File, id cachefile.Identity) *[16]byte {
	if r.recent == nil || r.opts.ReadSize == fileproc.NoRead || f.Truncated() {
		return nil
	}
	if e := r.recent[f.Rel()]; r.isSettled(id) && (e == nil || e.sum == nil) {
		return nil
	}
	sum := sha256.Sum256(f.Data())
	return (*[16]byte)(sum[:16])
}

// again keeps the outcome e for f, whose content is the same.
func (r *run[T]) again(f *fileproc.File, e *recent, id cachefile.Identity, sum *[16]byte) {
	core.SetUnchanged(f)
	rec := e.rec
	rec.ID = id
	r.workers[f.Worker()].held = e.value
	r.keep(f, rec, sum)
}

// remember notes rec, an outcome for f that is not kept, if there is a session.
func (r *run[T]) remember(f *fileproc.File, rec cachefile.Record, sum *[16]byte) {
	if r.recent == nil {
		return
	}
	e := &recent{rec: rec, sum: sum, state: recentUnsettled, value: r.workers[f.Worker()].held}
	switch {
	case rec.ID == cachefile.Identity{}: // it cannot be compared
	case rec.Outcome >= outcomeFailed && (rec.ID.Content != noContent || r.isSettled(rec.ID)):
		e.state = recentHeld
	case rec.Outcome != outcomeFailed:
		e.due = time.Unix(0, rec.ID.Newest()).Add(fsinfo.Settled)
	}
	r.addRecent(f, e)
}

func (r *run[T]) rememberKept(f *fileproc.File, rec cachefile.Record) {
	if r.recent != nil {
		r.addRecent(f, &recent{rec: rec})
	}
}

func (r *run[T]) addRecent(f *fileproc.File, e *recent) {
	w := &r.workers[f.Worker()]
	e.rec.Result = bytes.Clone(e.rec.Result) // the result is in the worker's buffer
	w.recent = append(w.recent, e)
}
