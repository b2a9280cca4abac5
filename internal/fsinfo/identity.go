package fsinfo

import (
	"io/fs"
	"math"
	"time"
)

// Settled is how old the times of a file must be to show each later change. The clock
// of a file system advances in steps of up to 10 ms (Linux), 1 s (HFS+) or 2 s (FAT):
// what is written twice within a step may look the same. Tests set it.
var Settled = 2 * time.Second

// IsSettled reports whether a file whose last change was at the time at, and that is
// looked at now, shows each later change. Both are nanoseconds since 1970.
func IsSettled(at, now int64) bool { return at <= now-int64(Settled) }

// An Identity is what is compared of a file's metadata: if it stays the same, and the
// times had settled, the file has not changed. Times are nanoseconds since 1970, 0 if
// there is none. What is not compared is 0.
type Identity struct {
	Size                           int64
	ModTime, ChangeTime, BirthTime int64
	Device, Inode                  uint64
	Mode                           fs.FileMode
}

// Of returns the identity that info shows: it has no birth time.
func Of(info fs.FileInfo) Identity {
	id := Identity{Size: info.Size(), Mode: info.Mode()}
	var change time.Time
	id.Device, id.Inode, change = systemOf(info)
	id.SetTimes(info.ModTime(), change, time.Time{})
	return id
}

// NoTime is the ModTime or ChangeTime of a file whose time cannot be compared: it is
// not within the years 1678 to 2262.
const NoTime = math.MinInt64

// SetTimes sets the times of id, of which change and birth may be zero.
func (id *Identity) SetTimes(mod, change, birth time.Time) {
	id.ModTime = nanoseconds(mod, NoTime)
	if !change.IsZero() {
		id.ChangeTime = nanoseconds(change, NoTime)
	}
	id.BirthTime = nanoseconds(birth, 0)
}

// nanoseconds returns t, or none if t is not within the years 1678 to 2262.
func nanoseconds(t time.Time, none int64) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	if s := t.Unix(); s <= -most || s >= most {
		return none
	}
	return t.UnixNano()
}

// Newest returns the time of the last change that id shows.
func (id Identity) Newest() int64 { return max(id.ModTime, id.ChangeTime, id.BirthTime) }
