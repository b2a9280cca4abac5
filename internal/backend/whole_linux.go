//go:build linux && !fileproc_unix && !fileproc_generic

package backend

import (
	"time"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
)

// listingSize is the size in bytes of the records of one Directory.List.
const listingSize = 32 << 10

func (l *Listing) addRecord(r dirent.Record) error {
	if !names.IsDot(r.Name) {
		l.Add(r.Name, sys.DirentType(r.Type), r.Ino)
	}
	return nil
}

// recordBuffer returns memory for the records, which stays with l.
func (l *Listing) recordBuffer() []byte {
	if l.records == nil {
		l.records = make([]byte, listingSize)
	}
	return l.records[:listingSize]
}

const (
	// oneAnswer is how many entries every server can give in one answer. The client of NFS
	// asks for at least 4 KiB, of which an entry with its attributes takes up to 600 bytes.
	oneAnswer = 6
	// maxRecord is the size in bytes of the longest record, rounded up. SMB has names of
	// 255 characters of up to three bytes each.
	maxRecord = 1 << 10
	// wholeTries is how many times a directory that changes all the time is listed at most. A
	// listing in calls of 4 KiB left out one entry in 1,100 on SMB (docs/dev/reliability.md).
	wholeTries = 4
	// wholePart is how many entries one call of wholeListing.list returns.
	wholePart = 1024
)

// coarseTime is the coarsest unit of a directory's time, the 2 s of FAT, and more.
var coarseTime = 3 * time.Second

// wholeSize is about how many bytes of memory the entries of a directory that is listed
// whole may take: those of 300,000 names of 10 bytes.
var wholeSize = 32 << 20

// A wholeListing lists a directory from its beginning, and again if the directory has
// changed meanwhile. Only then does it give the entries: all that any of the listings had.
type wholeListing struct {
	entries  []Entry // to be given
	names    names.Arena
	seen     map[string]struct{} // the names of all entries, also of those that were given
	size     int                 // of all entries, in bytes of memory
	midway   bool                // a listing is under way
	listings int                 // listings that were begun
	began    [2]time.Time        // the times when the last listing began
	over     bool                // nothing is left to be listed
	err      error
}

// A recordLister is the directory that a wholeListing lists. See linuxDir.
type recordLister interface {
	getdents(buf []byte, add func(dirent.Record) error) (int, error)
	rewind() error
	times() [2]time.Time
}

// list is Directory.List for d. It makes at most one call of getdents64, so that a run that
// is stopped can end soon.
func (w *wholeListing) list(d recordLister, l *Listing) (more bool, err error) {
	ends := func() bool { return w.over || w.err != nil }
	isFull := w.size > wholeSize
	switch {
	case !isFull && !ends():
		if err := w.listMore(d, l.recordBuffer()); err != nil {
			return false, err
		}
		if !ends() {
			return true, nil
		}
	case isFull && len(w.entries) == 0 && !ends(): // the rest of this listing is given at once
		n, err := d.getdents(l.recordBuffer(), func(r dirent.Record) error {
			if _, ok := w.seen[string(r.Name)]; ok {
				return nil
			}
			return l.addRecord(r)
		})
		return n > 0 && err == nil, err
	}
	n := min(len(w.entries), wholePart)
	l.Entries = append(l.Entries, w.entries[:n]...)
	clear(w.entries[:n])
	w.entries = w.entries[n:]
	if len(w.entries) > 0 || !ends() {
		return true, nil
	}
	return false, w.err
}

// listMore makes one call of the listing. If that was the last call and the directory
// has changed, the next call begins another listing. It returns an error if the call was
// interrupted and is to be made again.
func (w *wholeListing) listMore(d recordLister, buf []byte) error {
	if !w.midway {
		w.midway = true
		w.listings++
		w.began = d.times()
		if w.err = d.rewind(); w.err != nil {
			return nil
		}
	}
	// A change endangers the entry at which one call ends and the next begins. With fewer
	// bytes per call than in the listing before, it is another entry.
	buf = buf[:len(buf)-(w.listings-1)*len(buf)/8]
	n, err := d.getdents(buf, w.addRecord)
	if sys.IsInterrupted(err) {
		return err
	}
	if n > 0 || err != nil {
		w.err = err
		return nil
	}
	w.midway = false
	ended := d.times()
	same := ended == w.began && !ended[0].IsZero()
	if min(time.Since(ended[0]), time.Since(ended[1])) < coarseTime {
		same = same && w.listings > 1 // another change may have left the times as they were
	}
	w.over = same || w.listings == wholeTries
	return nil
}

// addRecord adds a copy of r unless there is an entry of that name.
func (w *wholeListing) addRecord(r dirent.Record) error {
	if _, ok := w.seen[string(r.Name)]; ok || names.IsDot(r.Name) {
		return nil
	}
	if w.seen == nil {
		w.seen = map[string]struct{}{}
	}
	const cost = 100 // bytes of an entry without its name, measured with 250,000
	w.size += cost + len(r.Name)
	name := w.names.Add(r.Name)
	w.seen[name.String()] = struct{}{}
	w.entries = append(w.entries, Entry{name.Bytes(), sys.DirentType(r.Type), r.Ino})
	return nil
}
