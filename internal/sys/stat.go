// Package sys holds system calls and code that differs between systems: descriptors, metadata,
// errors, limits and memory.
package sys

import (
	"io/fs"
	"time"
)

// Stat is a file's metadata. Its fields are those of fileproc.Stat, which documents
// them: an alias would hide them from the readers of that package.
type Stat struct {
	Size       int64
	ModTime    time.Time
	ChangeTime time.Time
	BirthTime  time.Time
	Mode       fs.FileMode
	Flags      uint32
	UID, GID   uint32
	Links      uint64
	Blocks     int64
	Inode      uint64
	Device     uint64
	Rdev       uint64
}

// TypeUnknown is the type of an entry whose type the file system did not report. It has all the
// bits of a file type, so no listing can give it.
const TypeUnknown = fs.ModeType

// StatOfInfo converts info to a Stat.
func StatOfInfo(info fs.FileInfo) Stat {
	s := Stat{Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}
	addSystemStat(&s, info)
	return s
}

// begun is about when this process began. Where its processor time is not known, ProcessorTime
// returns the time since then.
var begun = time.Now()

// Race says that borrowed buffers are overwritten when fn returns, so that a test under the
// race detector notices a slice that fn has kept.
var Race bool
