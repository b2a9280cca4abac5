// Package sum has the subcommands that sum up files: hash, du and stats.
package sum

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
	"github.com/fileproc/fileproc/internal/records"
	"github.com/spf13/cobra"
)

var algorithms = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New,
}

// hashPrefix is how many bytes of a file are read at first. Up to 64 files with that much content wait for a worker: with 256
// KiB, 100 files of 1 GiB take 30 MiB of memory at the peak instead of 16, in the same time.
const hashPrefix = 32 << 10

// A sums is one run of the subcommand hash: its flags, and the values derived from them.
type sums struct {
	*run.Run
	algorithm                                                      string
	null, json, checks, quiet, status, warn, strict, ignoreMissing bool
	hashes                                                         sync.Pool // of hash.Hash: a new one for each file takes a tenth more time
}

// Hash returns the subcommand hash.
func Hash(r *run.Run) *cobra.Command {
	s := sums{Run: r}
	names := slices.Sorted(maps.Keys(algorithms))
	cmd := &cobra.Command{
		Use:   "hash [flags] [DIR|FILE]...",
		Short: "Print or check SHA-256 checksums, as sha256sum does",
		Long: `Print the checksum of every regular file below the directories, including hidden and ignored files, in the format of
sha256sum: names with a newline, a carriage return or a backslash are escaped. With --check, read such lines from the
arguments, in every form that sha256sum accepts, and report which of the listed files have changed. "-" is standard input,
which is also read without an argument if it is a pipe or a file, and always with --check. --check --cache opens only what
has changed below the working directory.`,
		Example: "  fileproc hash src > SUMS\n  fileproc hash --check --quiet SUMS",
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"quiet", "status", "warn", "strict", "ignore-missing"} {
				if cmd.Flags().Changed(name) && !s.checks {
					return fmt.Errorf("--%s needs --check", name)
				}
			}
			s.hashes.New, r.Opts.ReadSize = func() any { return algorithms[s.algorithm]() }, hashPrefix
			if s.checks {
				s.Found.Store(true)
				if len(args) == 0 {
					args = []string{run.Stdin}
				}
				for _, list := range args {
					if err := s.checkList(list); err != nil {
						s.Fail(err)
					}
				}
				return nil
			}
			return r.Each(run.Job{Args: r.OrStdin(args), Stdin: true, Read: s.read, Print: s.print, Version: "sum " + s.algorithm})
		},
	}
	f := cmd.Flags()
	run.Choice(cmd, f, &s.algorithm, "algorithm", "a", "sha256", names, "`NAME`: "+strings.Join(names, ", "))
	f.BoolVarP(&s.null, "zero", "z", false, "end each line with a NUL byte, and do not escape names")
	f.BoolVar(&s.json, "json", false, "print one JSON object per line: path, algorithm, hash")
	f.BoolVarP(&s.checks, "check", "c", false, "read checksums from the files, and check them")
	f.BoolVar(&s.quiet, "quiet", false, "with --check: do not print OK for each file")
	f.BoolVar(&s.status, "status", false, "with --check: print no results; only the exit code reports them")
	f.BoolVarP(&s.warn, "warn", "w", false, "with --check: report each malformed line")
	f.BoolVar(&s.strict, "strict", false, "with --check: fail if a line is malformed")
	f.BoolVar(&s.ignoreMissing, "ignore-missing", false, "with --check: do not report or fail for missing files")
	r.Flags(cmd, run.All|run.Reads|run.Sorts|run.Keeps, "json check", "json zero", "zero check", "check files-from")
	return cmd
}

// read returns the checksum of a file.
func (s *sums) read(it *run.Item) ([]byte, error) {
	return s.sum(it.Reader())
}

func (s *sums) sum(in io.Reader) ([]byte, error) {
	h := s.hashes.Get().(hash.Hash)
	defer s.hashes.Put(h)
	h.Reset()
	if _, err := io.Copy(h, in); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

func (s *sums) print(path string, sum []byte, c *output.Chunk) error {
	s.Found.Store(true)
	if s.json {
		c.B = fmt.Appendf(c.B, `{"path":%s,"algorithm":"%s","hash":"%x"}`+"\n", output.Path(path), s.algorithm, sum)
		return nil
	}
	name, end := path, byte(0)
	if !s.null {
		if name, end = escaper.Replace(path), '\n'; len(name) > len(path) {
			c.B = append(c.B, '\\')
		}
		name = s.Out.Shown(name)
	}
	c.B = append(append(append(hex.AppendEncode(c.B, sum), "  "...), name...), end)
	return nil
}

// escaper and unescaper convert names as sha256sum does. unescaper turns an invalid escape into a NUL byte, which no name has.
var (
	escaper   = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r", `\`, "\x00")
)

// A list is a list of checksums that is read as sha256sum does.
type list struct {
	*sums
	in                                               *bufio.Scanner
	isStdin                                          bool // in is standard input
	label                                            string
	tag                                              string         // of the format "SHA256 (name) = sum"
	form                                             *regexp.Regexp // of that format, or "sum  name": one blank, as md5 -r prints, or two, of which the second may be *
	lines, missing, unreadable, different, malformed int
}

// A listEntry is one line of a list.
type listEntry struct{ sum, name string }

// checkList is hash --check for one list.
func (s *sums) checkList(name string) (err error) {
	in, label := os.Stdin, "'standard input'"
	if name != run.Stdin {
		if in, err = os.Open(name); err != nil {
			return err
		}
		defer in.Close()
		label = name
	}
	l := list{sums: s, in: bufio.NewScanner(in), isStdin: in == os.Stdin, label: label, tag: strings.ToUpper(s.algorithm)}
	sum := fmt.Sprintf("([[:xdigit:]]{%d})", 2*algorithms[s.algorithm]().Size())
	l.form = regexp.MustCompile(`(?s)^[ \t]*(\\?)(?:` + l.tag + ` ?\((.*)\)[ \t]*=[ \t]*` + sum + `|` + sum + `[ \t][ *]?(.+))$`)
	l.in.Buffer(nil, math.MaxInt)
	entries, known := iter.Seq[listEntry](l.entries), map[string][]byte{}
	if s.Cache != "" {
		all := slices.Collect(entries)
		entries = slices.Values(all)
		s.fromCache(all, known)
	}
	inOrder(s.Ctx, s.Opts.Workers, entries, func(e listEntry) (done func()) {
		sum, isKnown := known[belowHere(e.name)]
		var err error
		if e.name != run.Stdin && !isKnown {
			var in *os.File
			if in, err = os.Open(e.name); err == nil {
				sum, err = s.sum(run.Counted{Reader: in, Run: s.Run})
				in.Close()
			}
		}
		return func() {
			if e.name == run.Stdin { // the first one reads it to the end
				sum, err = s.sum(run.Counted{Reader: os.Stdin, Run: s.Run})
			}
			if !isKnown && err == nil {
				s.Totals.Processed++
			}
			l.print(e.name, err, string(sum) != e.sum)
		}
	})
	s.Out.ShowProgress()
	s.Totals.Failed += int64(l.unreadable)
	if l.in.Err() == nil && s.Ctx.Err() == nil && !l.summarize() {
		s.Found.Store(false) // so that the exit code is 1, as sha256sum's
	}
	return l.in.Err()
}

// maxAhead is how many items inOrder may be ahead of the one in its turn: enough that a large file does not block the other workers.
const maxAhead = 256

// inOrder calls work for each item, on all workers, and the functions that work returns in the order of the items.
func inOrder[T any](ctx context.Context, workers int, items iter.Seq[T], work func(T) (done func())) {
	ahead, slots := make(chan chan func(), maxAhead), make(chan struct{}, workers)
	go func() {
		defer close(ahead)
		for x := range items {
			slots <- struct{}{}
			if ctx.Err() != nil { // a cancelled run starts no more work
				return
			}
			done := make(chan func(), 1)
			ahead <- done
			go func() {
				done <- work(x)
				<-slots
			}()
		}
	}()
	for done := range ahead {
		(<-done)()
	}
}

// belowHere returns a listed name as a path of fileproc.Options.Files below the working directory, or "".
func belowHere(name string) string {
	if dir, rel := records.Split(name); dir == "" && !strings.HasSuffix(rel, "/") {
		return rel
	}
	return ""
}

// fromCache puts the checksums of files below the working directory into known, by path, with --cache. It leaves a file that it
// cannot read, such as one behind a symbolic link, to checkList.
func (s *sums) fromCache(entries []listEntry, known map[string][]byte) {
	s.Opts.OnError = func(error) error { return nil }
	s.Opts.Files = func(yield func(string) bool) {
		for _, e := range entries {
			if rel := belowHere(e.name); rel != "" && !yield(rel) {
				return
			}
		}
	}
	err := s.Each(run.Job{Read: s.read, Version: "sum " + s.algorithm, Print: func(path string, sum []byte, _ *output.Chunk) error {
		known[filepath.ToSlash(path)] = bytes.Clone(sum)
		return nil
	}})
	if err != nil {
		s.Fail(errors.New(s.AsFlags(err)))
	}
}

// print prints the result of one file, as sha256sum does. err says that the file could not be read.
func (l *list) print(name string, err error, differs bool) {
	if l.Ctx.Err() != nil {
		return
	}
	l.lines++
	l.Out.Count(1, 0)
	what := "OK"
	switch {
	case l.ignoreMissing && errors.Is(err, fs.ErrNotExist):
		l.missing++
		return
	case err != nil:
		l.unreadable++
		l.Out.Warn(run.Describe(err))
		what = "FAILED open or read"
	case differs:
		l.different++
		what = "FAILED"
	}
	if l.status || l.quiet && what == "OK" {
		return
	}
	if strings.Contains(name, "\n") {
		name = `\` + escaper.Replace(name)
	}
	l.Out.Write([]byte(l.Out.Shown(name) + ": " + what + "\n"))
}

// summarize warns of the problems of a list, and reports whether there were none that count.
func (l *list) summarize() bool {
	if l.lines == 0 {
		l.Out.Warn(l.label + ": no properly formatted checksum lines found")
		return false
	}
	warn := func(n int, one, many string) {
		if n > 0 && !l.status {
			l.Out.Warn("WARNING: " + output.Count(int64(n), one, many))
		}
	}
	warn(l.malformed, "line is improperly formatted", "lines are improperly formatted")
	warn(l.unreadable, "listed file could not be read", "listed files could not be read")
	warn(l.different, "computed checksum did NOT match", "computed checksums did NOT match")
	if l.missing == l.lines {
		l.Out.Warn(l.label + ": no file was verified")
		return false
	}
	return l.unreadable == 0 && l.different == 0 && !(l.strict && l.malformed > 0)
}

// entries yields the lines that are well formed.
func (l *list) entries(yield func(listEntry) bool) {
	for number := 1; l.in.Scan(); number++ {
		line := l.in.Text()
		switch e, ok := l.parse(line); {
		case ok && e.name == run.Stdin && l.isStdin: // standard input is the list itself: the line is malformed, as for sha256sum
		case ok && !yield(e):
			return
		case ok || line == "" || line[0] == '#':
			continue
		}
		l.malformed++
		if l.warn {
			l.Out.Warn(fmt.Sprintf("%s: %d: improperly formatted %s checksum line", l.label, number, l.tag))
		}
	}
}

func (l *list) parse(line string) (e listEntry, ok bool) {
	m := l.form.FindStringSubmatch(line)
	if m == nil {
		return e, false
	}
	sum, _ := hex.DecodeString(m[3] + m[4]) // no error: form takes only hexadecimal digits, as many as a sum has
	e = listEntry{sum: string(sum), name: m[2] + m[5]}
	if m[1] != "" {
		e.name = unescaper.Replace(e.name)
	}
	return e, !strings.Contains(e.name, "\x00")
}
