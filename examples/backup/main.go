// Backup prints what a backup of a directory keeps: a line for each entry, in order.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"

	"github.com/fileproc/fileproc"
)

func main() {
	opts := fileproc.Options{AllTypes: true, Stat: true, Ordered: true, ReadSize: 1 << 20}
	for line, err := range fileproc.Stream(context.Background(), os.Args[1], opts, describe) {
		if err != nil {
			log.Print(err)
		} else {
			fmt.Println(line)
		}
	}
}

func describe(f *fileproc.File) (string, error) {
	s, err := f.Stat() // of the handle that reads the file
	line := fmt.Sprintf("%q %v %d %d %d %d", f.Rel(), s.Mode, s.UID, s.GID, s.Links, s.ModTime.UnixNano())
	xattrs, notRead := f.Xattrs()
	if notRead != nil && !errors.Is(notRead, errors.ErrUnsupported) {
		return "", notRead
	}
	switch f.Type() {
	case fs.ModeSymlink:
		text, err := f.ReadLink()
		return fmt.Sprintf("%s %q %q", line, text, xattrs), err
	case 0:
		h := sha256.New()
		_, err = io.Copy(h, f.Reader())
		line += fmt.Sprintf(" %x", h.Sum(nil))
	}
	return fmt.Sprintf("%s %q", line, xattrs), err
}
