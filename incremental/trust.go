package incremental

import (
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// A trust says where metadata shows each change.
type trust struct {
	compare Compare
	root    bool          // of the device that root is on
	others  sync.Map      // by device: whether it does so there
	last    atomic.Uint64 // a device for which that is true, plus 1
}

// of reports whether it does so for f, which has the metadata s.
func (t *trust) of(s fileproc.Stat, f *fileproc.File) bool {
	if t.compare != CompareAuto || !t.root {
		return t.root
	}
	// A change time without nanoseconds is from a coarse clock (ext4 with small inodes,
	// HFS+), or from an image that was made with the same times as the one before
	// (squashfs, EROFS, also below an overlay).
	if s.ChangeTime.Nanosecond() == 0 {
		return false
	}
	if t.last.Load() == s.Device+1 { // the map would take memory for each file
		return true
	}
	if yes, ok := t.others.Load(s.Device); ok {
		return yes.(bool)
	}
	// Below root, another file system may be mounted.
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	yes := fsinfo.FileKeepsTimes(file)
	t.others.Store(s.Device, yes)
	if yes {
		t.last.Store(s.Device + 1)
	}
	return yes
}
