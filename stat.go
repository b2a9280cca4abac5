package fileproc

import (
	"io/fs"
	"time"
)

// Stat is a file's metadata.
type Stat struct {
	Size    int64 // in bytes
	ModTime time.Time
	// ChangeTime is when the content or the metadata changed last. It is zero where
	// there is none, as on Windows or in most fs.FS.
	ChangeTime time.Time
	// BirthTime is when the file was created. It is zero where that is unknown, and
	// on Linux with Options.Stat, since to ask for it takes longer.
	BirthTime time.Time
	Mode      fs.FileMode // type and permission bits
	Inode     uint64      // 0 where there is none, as ChangeTime
	Device    uint64      // as Inode
}

// typeUnknown is the type of an entry whose file system did not report it. The
// bits are those of a file type, so no listing can give it.
const typeUnknown = fs.ModeType
