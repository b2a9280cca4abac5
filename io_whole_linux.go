//go:build linux && !fileproc_unix && !fileproc_generic

package fileproc

import (
	"time"

	"github.com/fileproc/fileproc/internal/dirent"
	"github.com/fileproc/fileproc/internal/names"
	"github.com/fileproc/fileproc/internal/sys"
	"golang.org/x/sys/unix"
)

// losesPosition reports whether a listing that takes several calls may leave out, or
// give twice, an entry that nobody touches, if other entries come and go meanwhile. The
// client of SMB counts entries. The client of NFS uses the server's positions, which on
// some file systems (tmpfs before Linux 6.6) do not survive a change.
func (d *linuxDir) losesPosition() bool {
	switch d.fileSystem() {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unknownFileSystem:
		return true
	}
	return false
}

const (
	// oneAnswer is how many entries every server can give in one answer. The client of NFS
	// asks for at least 4 KiB, of which an entry with its attributes takes up to 600 bytes.
	oneAnswer = 6
	// maxRecord is the size in bytes of the longest record, rounded up. SMB has names of
	// 255 characters of up to three bytes each.
	maxRecord = 1 << 10
	// wholeTries is how often at most a directory is listed that changes all the time. A
	// listing in calls of 4 KiB left out one entry in 1,100 on SMB (docs/dev/reliability.md).
	wholeTries = 4
	// wholePart is how many entries of a wholeListing one call of list gives.
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
	entries  []listedEntry // to be given
	names    names.Arena
	seen     map[string]struct{} // the names of all entries, also of those that were given; nil when nothing is left
	size     int                 // of all entries, in bytes of memory
	midway   bool                // a listing is under way
	listings int                 // listings that were begun
	began    [2]time.Time        // linuxDir.times when the last listing began
	over     bool                // nothing is left to be listed
	err      error
}

// listWhole is list for a directory with a wholeListing. It makes at most one call of
// getdents64, so that a run that is stopped can end soon.
func (d *linuxDir) listWhole(l *listing) (more bool, err error) {
	w := d.whole
	ends := func() bool { return w.over || w.err != nil }
	isFull := w.size > wholeSize
	switch {
	case !isFull && !ends():
		if err := d.listMore(w, l.recordBuffer()); err != nil {
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
		if n > 0 && err == nil {
			return true, nil
		}
		if sys.IsInterrupted(err) {
			return false, err
		}
		d.whole = nil
		return false, err
	}
	n := min(len(w.entries), wholePart)
	l.entries = append(l.entries, w.entries[:n]...)
	clear(w.entries[:n])
	w.entries = w.entries[n:]
	if len(w.entries) > 0 || !ends() {
		return true, nil
	}
	d.whole = nil
	return false, w.err
}

// listMore makes one call of the listing. If that was the last call and the directory
// has changed, the next call begins another listing. It returns an error if the call was
// interrupted and is to be made again.
func (d *linuxDir) listMore(w *wholeListing, buf []byte) error {
	if !w.midway {
		w.midway = true
		w.listings++
		w.began = d.times()
		if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
			w.err = &sys.Error{Op: "lseek", Err: err}
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
	if w.over = same || w.listings == wholeTries; w.over {
		w.seen = nil
	}
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
	w.entries = append(w.entries, listedEntry{name.Bytes(), sys.DirentType(r.Type), r.Ino})
	return nil
}

// times returns when d's entries and when d itself changed last, or zero times if that is
// unknown. It asks the server, since the client may cache times for a minute.
func (d *linuxDir) times() (times [2]time.Time) {
	var st unix.Statx_t
	_, err := sys.IgnoringEINTR(func() (int, error) {
		return 0, statx(d.fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_MTIME|unix.STATX_CTIME, &st)
	})
	if err == nil {
		times = [2]time.Time{sys.TimeOfStatx(st.Mtime), sys.TimeOfStatx(st.Ctime)}
	}
	return times
}
