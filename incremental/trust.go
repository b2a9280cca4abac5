package incremental

import (
	"sync"

	"github.com/fileproc/fileproc"
)

// A trust says on which devices metadata shows each change.
type trust struct {
	compare Compare
	root    bool // of the device that root is on
	others  sync.Map
}

// of reports whether it does so on the device of f.
func (t *trust) of(device uint64, f *fileproc.File) bool {
	if t.compare != CompareAuto || !t.root {
		return t.root
	}
	if yes, ok := t.others.Load(device); ok {
		return yes.(bool)
	}
	// Below root, another file system may be mounted.
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	yes := fileKeepsTimes(file)
	t.others.Store(device, yes)
	return yes
}
