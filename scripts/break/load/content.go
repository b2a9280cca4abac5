package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// maxHead is more than the first line of any content is long.
const maxHead = 256

// A library makes the content of files. It is a line with the file's name, generation and size, followed by bytes from a
// place in a pool of random ones that depends on all three. So content that is torn, old or another file's is found, and to
// make or check a file costs no more than a copy or a comparison.
type library struct{ pool []byte }

func newLibrary(seed uint64, largest int) *library {
	pool := make([]byte, largest+1<<20)
	_, _ = rand.NewChaCha8([32]byte(fmt.Appendf(nil, "%032d", seed))).Read(pool) // never fails
	return &library{pool}
}

// A file is what is stored under a name. Each time the name is created again, the generation is one higher.
type file struct {
	name       string // in its directory
	dir        string // with slashes
	generation int
	size       int
}

func (f file) path() string { return f.dir + "/" + f.name }

// head returns the first line and where in the pool the rest begins.
func (l *library) head(f file) (line []byte, from int) {
	line = fmt.Appendf(make([]byte, 0, maxHead), "%s %d %d\n", f.path(), f.generation, f.size)
	h := fnv.New32a()
	h.Write(line)
	return line, int(h.Sum32() % (1 << 20))
}

// make returns the content of f in the memory of buf, which it replaces if it is too small.
func (l *library) make(buf []byte, f file) []byte {
	line, from := l.head(f)
	buf = append(buf[:0], line[:min(len(line), f.size)]...)
	return append(buf, l.pool[from:from+f.size-len(buf)]...)
}

// check returns an error unless data is the content of f.
func (l *library) check(f file, data []byte) error {
	line, from := l.head(f)
	line = line[:min(len(line), f.size)]
	switch {
	case len(data) != f.size:
		return fmt.Errorf("%s has %d bytes of %d", f.path(), len(data), f.size)
	case !bytes.HasPrefix(data, line):
		got, _, _ := bytes.Cut(data[:min(len(data), maxHead)], []byte("\n"))
		return fmt.Errorf("%s begins with %q, not %q", f.path(), got, line)
	case !bytes.Equal(data[len(line):], l.pool[from:from+f.size-len(line)]):
		return fmt.Errorf("%s has wrong content", f.path())
	}
	return nil
}
