package incremental

import (
	"bytes"
	"errors"
	"reflect"
	"time"

	"github.com/fileproc/fileproc/incremental/internal/cachefile"
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

func (e *recent) past() past {
	view := cachefile.View{ID: e.rec.ID, Outcome: e.rec.Outcome, Result: e.rec.Result}
	return past{View: view, isKnown: !e.isDeleted(), isYoung: e.isUnsettled(), held: e.value}
}

func deleted() *recent { return &recent{rec: cachefile.Record{Outcome: outcomeDeleted}} }

func (e *recent) isDeleted() bool { return e != nil && e.rec.Outcome == outcomeDeleted }

func (e *recent) isUnsettled() bool { return e != nil && e.state == recentUnsettled }

// isSame reports whether fn would get a file with the same content and mode as the one it got for e.
func (e *recent) isSame(id cachefile.Identity, sum *[16]byte) bool {
	return e != nil && e.sum != nil && sum != nil && *e.sum == *sum && e.rec.ID.Mode == id.Mode
}

// isRepeated reports whether a call of fn gave rec, the outcome that e has already, and nothing shows that the file has changed in
// between: its metadata is the same, or cannot be compared.
func (e *recent) isRepeated(rec cachefile.Record, value any) bool {
	return e != nil && isSameID(e.rec.ID, rec.ID) && e.rec.Outcome == rec.Outcome && bytes.Equal(e.rec.Result, rec.Result) && reflect.DeepEqual(e.value, value)
}

// isSameID compares the identities that two looks gave. On Linux, the metadata of an open file has no birth time.
func isSameID(a, b cachefile.Identity) bool {
	if a.BirthTime == 0 || b.BirthTime == 0 {
		a.BirthTime, b.BirthTime = 0, 0
	}
	return a == b
}
