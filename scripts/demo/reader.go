package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

// The kinds of readers.
const (
	readerFileproc = "fileproc"
	readerPlain    = "plain"
)

const prefixSize = 2048 // bytes; no frontmatter is longer

type request struct {
	Dir   string
	Parse bool // also read the fields and fill in the summary, which timed requests do not
}

type answer struct {
	Name    string // of the reader
	Error   string
	Files   int
	Elapsed time.Duration

	Digest string // over the sorted paths and frontmatters
	Status map[string]int
	Type   map[string]int
	Newest newest
}

// newest is the ticket with the latest date and, among tickets of the same date, the greatest ID.
type newest struct{ Created, ID, Title string }

// disagrees returns an error that says how b differs from a, or nil.
func (a answer) disagrees(b answer) error {
	switch {
	case a.Files != b.Files:
		return fmt.Errorf("%d files against %d", a.Files, b.Files)
	case a.Digest != b.Digest:
		return errors.New("different paths or different frontmatter")
	case !maps.Equal(a.Status, b.Status) || !maps.Equal(a.Type, b.Type) || a.Newest != b.Newest:
		return errors.New("different counts from the same frontmatter")
	}
	return nil
}

// counts formats m, the most frequent first.
func counts(m map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%s %d", k, m[k]))
	}
	return strings.Join(out, ", ")
}

// A reader is a child process, because the backend is chosen at build time. It serves many requests, so its start is not
// measured.
type reader struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

func startReader(program, kind string) (*reader, error) {
	cmd := exec.Command(program, "-worker", kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &reader{cmd, in, json.NewEncoder(in), json.NewDecoder(out)}, nil
}

func (r *reader) ask(q request) (answer, error) {
	var a answer
	if err := r.enc.Encode(q); err != nil {
		return a, err
	}
	if err := r.dec.Decode(&a); err != nil {
		return a, fmt.Errorf("%s ended: %w", r.cmd.Path, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", a.Name, a.Error)
	}
	return a, nil
}

func (r *reader) close() {
	r.in.Close() // ends the child's loop
	r.cmd.Wait()
}

// serve answers requests in the child process.
func serve(kind string, in io.Reader, out io.Writer) error {
	var read func(dir string) ([]extract, error)
	var name string
	switch kind {
	case readerFileproc:
		read, name = readFileproc, "fileproc "+fileproc.Backend()
	case readerPlain:
		read, name = readLoop, "WalkDir + ReadFile"
	default:
		return fmt.Errorf("unknown reader %q", kind)
	}
	dec, enc := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var q request
		if err := dec.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		start := time.Now()
		extracts, err := read(q.Dir)
		a := answer{Name: name, Files: len(extracts), Elapsed: time.Since(start)}
		if err == nil && q.Parse {
			a.summarize(extracts)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

type extract struct{ rel, frontmatter string }

func readFileproc(dir string) ([]extract, error) {
	opts := fileproc.Options{Suffixes: []string{".md"}, ReadSize: prefixSize}
	return fileproc.Process(context.Background(), dir, opts, func(f *fileproc.File) (extract, error) {
		front, err := tickets.Frontmatter(f.Data())
		return extract{f.Rel(), string(front)}, err
	})
}

func readLoop(dir string) ([]extract, error) {
	var extracts []extract
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".md") {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		front, err := tickets.Frontmatter(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		rel, err := filepath.Rel(dir, path)
		extracts = append(extracts, extract{rel, string(front)})
		return err
	})
	return extracts, err
}

func (a *answer) summarize(extracts []extract) {
	a.Status, a.Type = map[string]int{}, map[string]int{}
	slices.SortFunc(extracts, func(x, y extract) int { return strings.Compare(x.rel, y.rel) })
	h := sha256.New()
	for _, x := range extracts {
		fmt.Fprintf(h, "%s\x00%d\x00%s", x.rel, len(x.frontmatter), x.frontmatter)
		field := func(key string) string { return tickets.Field([]byte(x.frontmatter), key) }
		a.Status[field("status")]++
		a.Type[field("type")]++
		t := newest{field("created"), field("id"), field("title")}
		if cmp.Or(strings.Compare(t.Created, a.Newest.Created), strings.Compare(t.ID, a.Newest.ID)) > 0 {
			a.Newest = t
		}
	}
	a.Digest = hex.EncodeToString(h.Sum(nil))
}
