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
	due   time.Time // of what is not kept: when it may be
	value any       // of outcomeHeld: the result; of outcomeFailed: the text of the error
}

type recentState int

const (
	recentKept      recentState = iota // the store has it too, and the next load will
	recentUnsettled                    // too new to be kept: equal metadata says nothing yet
	recentHeld                         // known as long as the session lives: fn has failed, or its result cannot be encoded
)

// Outcomes that are never saved.
const (
	outcomeFailed  cachefile.Outcome = 100 + iota // fn has failed
	outcomeHeld                                   // the result cannot be encoded
	outcomeDeleted                                // there is none: what the store has is of a file that was deleted
)

// errStillFails is returned in place of calling fn for a file that has not changed since fn failed.
var errStillFails = errors.New("incremental: as before")

func (e *recent) view() cachefile.View {
	return cachefile.View{ID: e.rec.ID, Outcome: e.rec.Outcome, Result: e.rec.Result}
}

func deleted() *recent { return &recent{rec: cachefile.Record{Outcome: outcomeDeleted}} }

func (e *recent) isDeleted() bool { return e != nil && e.rec.Outcome == outcomeDeleted }

func (e *recent) isUnsettled() bool { return e != nil && e.state == recentUnsettled }

// isSame reports whether fn would get what it got for e.
func (e *recent) isSame(id cachefile.Identity, sum *[16]byte) bool {
	return e != nil && e.sum != nil && sum != nil && *e.sum == *sum && e.rec.ID.Mode == id.Mode && e.rec.ID.Size == id.Size
}

// isKnown reports whether rec, for which fn was called, is what e says, though nothing shows that the file has changed: its
// metadata is the same, or cannot be compared. Value is as in e.
func (e *recent) isKnown(rec cachefile.Record, value any) bool {
	return e != nil && isSameID(e.rec.ID, rec.ID) && e.rec.Outcome == rec.Outcome && bytes.Equal(e.rec.Result, rec.Result) && reflect.DeepEqual(e.value, value)
}

// isStill reports whether e is the outcome for a file with the metadata id, that is not compared by content, because nothing
// has happened to it since.
func (r *run[T]) isStill(rel string, e *recent, id cachefile.Identity) bool {
	still := core.Hooks(&r.opts).IsStill
	return still != nil && e.isUnsettled() && e.sum == nil && id.Content == noContent && isSameID(e.rec.ID, id) && still(rel)
}

// isSameID compares what two looks gave. On Linux, what a handle gives has no birth time.
func isSameID(a, b cachefile.Identity) bool {
	if a.BirthTime == 0 || b.BirthTime == 0 {
		a.BirthTime, b.BirthTime = 0, 0
	}
	return a == b
}

// sumOf returns the sum of the content of f if that will be compared: because it is
// too new to be kept, or was. It is called before fn, which may overwrite the content.
func (r *run[T]) sumOf(f *fileproc.File, id cachefile.Identity, keeps bool) *[16]byte {
	if r.recent == nil || !keeps || id.Content != noContent || r.opts.ReadSize == fileproc.NoRead || f.Truncated() {
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
	w := &r.workers[f.Worker()]
	w.held = e.value
	r.keep(f, rec, sum)
	w.held = nil
}

// remember notes the outcome for f, which is not kept.
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
	e.rec.Result = bytes.Clone(e.rec.Result) // it is in the worker's buffer
	w.recent = append(w.recent, e)
}
