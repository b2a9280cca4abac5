// Command count prints, for each file under a directory, how many of its lines contain a string, as grep -rFc does. The
// report compares it, as a whole program, with ripgrep and grep.
//
//	count STRING DIR
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/fileproc/fileproc"
)

func main() {
	if len(os.Args) != 3 || os.Args[1] == "" {
		log.Fatal("usage: count STRING DIR")
	}
	needle := []byte(os.Args[1])
	found, err := fileproc.Process(context.Background(), os.Args[2], fileproc.Options{}, func(f *fileproc.File) (string, error) {
		if n := lines(f.Data(), needle); n > 0 {
			return fmt.Sprintf("%s:%d\n", f.Path(), n), nil
		}
		return "", fileproc.ErrSkip
	})
	if _, errWrite := os.Stdout.WriteString(strings.Join(found, "")); err != nil || errWrite != nil {
		log.Fatal("count: ", errors.Join(err, errWrite))
	}
}

func lines(data, needle []byte) (n int) {
	for i := bytes.Index(data, needle); i >= 0; i = bytes.Index(data, needle) {
		n++
		_, data, _ = bytes.Cut(data[i:], []byte("\n"))
	}
	return n
}
