package fsinfo

import (
	"io/fs"
	"math"
	"time"
)

// Settled is the age from which a file's times show each later change. The clock
// of a file system advances in steps of up to 10 ms (Linux), 1 s (HFS+) or 2 s (FAT):
// two writes within a step may leave the same times. Tests set Settled.
var Settled = 2 * time.Second

// IsSettled reports whether a file's times show each later change, if its last change was
// at the time at, and the caller looks at it now. Both are nanoseconds since 1970.
func IsSettled(at, now int64) bool { return at <= now-int64(Settled) }

// An Identity is the part of a file's metadata that is compared: if it stays the same, and the
// times had settled, the file has not changed. Times are nanoseconds since 1970, 0 if
// there is none. A field that is not compared is 0.
type Identity struct {
	Size                           int64
	ModTime, ChangeTime, BirthTime int64
	Device, Inode                  uint64
	Mode                           fs.FileMode
}

// Of returns the identity that info shows. The identity has no birth time.
func Of(info fs.FileInfo) Identity {
	id := Identity{Size: info.Size(), Mode: info.Mode()}
	var change time.Time
	id.Device, id.Inode, change = systemOf(info)
	id.SetTimes(info.ModTime(), change, time.Time{})
	return id
}

// NoTime is the ModTime or ChangeTime of a file whose time is outside the years 1678 to
// 2262, and so cannot be compared.
const NoTime = math.MinInt64

// SetTimes sets the times of id. Change and birth may be zero.
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
