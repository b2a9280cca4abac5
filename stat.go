package fileproc

import (
	"io/fs"
	"time"
)

// Stat is a file's metadata.
type Stat struct {
	Size    int64 // in bytes
	ModTime time.Time
	Mode    fs.FileMode // type and permission bits
	Inode   uint64      // 0 where there is none, as on Windows or in most fs.FS
	Device  uint64      // as Inode
}

// typeUnknown is the type of an entry whose file system did not report it. The
// bits are those of a file type, so no listing can give it.
const typeUnknown = fs.ModeType

func statOfInfo(info fs.FileInfo) Stat {
	s := Stat{Size: info.Size(), ModTime: info.ModTime(), Mode: info.Mode()}
	s.Device, s.Inode = inodeOf(info)
	return s
}

// statOfStored is statOfInfo for an fs.FS. Some, object stores among them, call
// a file fs.ModeIrregular, since they know nothing else about it.
func statOfStored(info fs.FileInfo) Stat {
	s := statOfInfo(info)
	s.Mode &^= fs.ModeIrregular
	return s
}
