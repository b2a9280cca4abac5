//go:build !linux || fileproc_unix || fileproc_generic

package backend

import (
	"io/fs"
	"os"
)

func ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}
