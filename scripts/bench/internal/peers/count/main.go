// Command count prints, for each file under a directory, how many of its lines contain a string, as grep -rFc does. The
// report compares it, as a whole program, with ripgrep and grep.
//
//	count STRING DIR
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/fileproc/fileproc"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || args[0] == "" {
		return fmt.Errorf("usage: count STRING DIR")
	}
	needle := []byte(args[0])
	found, err := fileproc.Process(context.Background(), args[1], fileproc.Options{}, func(f *fileproc.File) (string, error) {
		if n := lines(f.Data(), needle); n > 0 {
			return fmt.Sprintf("%s:%d\n", f.Path(), n), nil
		}
		return "", fileproc.ErrSkip
	})
	out := bufio.NewWriter(os.Stdout)
	for _, line := range found {
		out.WriteString(line)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return err
}

func lines(data, needle []byte) (n int) {
	for {
		i := bytes.Index(data, needle)
		if i < 0 {
			return n
		}
		n++
		if _, data, _ = bytes.Cut(data[i:], []byte("\n")); len(data) == 0 {
			return n
		}
	}
}
