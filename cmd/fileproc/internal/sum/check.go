package sum

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

// check is hash --check.
func (s *sums) check(lists []string) {
	if len(lists) == 0 {
		lists = []string{run.Stdin}
	}
	s.Found.Store(true)
	for _, list := range lists {
		if err := s.checkList(list); err != nil {
			s.Fail(err)
		}
	}
}

// A list is a list of checksums that is read as sha256sum does.
type list struct {
	*sums
	in    *bufio.Scanner
	label string
	tag   string         // of the format "SHA256 (name) = sum"
	form  *regexp.Regexp // of that format, or "sum  name": one blank, as md5 -r prints, or two, of which the second may be *

	lines, same, different, malformed, unreadable int
}

// A listEntry is one line of a list.
type listEntry struct{ sum, name string }

func (s *sums) checkList(name string) (err error) {
	in, label := os.Stdin, "'standard input'"
	if name != run.Stdin {
		if in, err = os.Open(name); err != nil {
			return err
		}
		defer in.Close()
		label = name
	}
	l := list{sums: s, in: bufio.NewScanner(in), label: label, tag: strings.ToUpper(s.algorithm)}
	sum := fmt.Sprintf("([[:xdigit:]]{%d})", 2*s.newHash().Size())
	l.form = regexp.MustCompile(`(?s)^[ \t]*(\\?)(?:` + l.tag + ` ?\((.*)\)[ \t]*=[ \t]*` + sum + `|` + sum + `[ \t][ *]?(.+))$`)
	l.in.Buffer(nil, math.MaxInt)
	entries, known := iter.Seq[listEntry](l.entries), map[string][]byte{}
	if s.Cache != "" {
		all := slices.Collect(entries)
		entries = slices.Values(all)
		s.fromCache(all, known)
	}
	run.InTurn(s.Run, entries, func(e listEntry, _ func()) (emit func() error) {
		sum, isKnown := known[belowHere(e.name)]
		var err error
		if !isKnown {
			it := s.Named(e.name)
			sum, err = s.read(&it)
			it.Close()
		}
		return func() error {
			if !isKnown && err == nil {
				s.Totals.Processed++
			}
			l.print(e.name, err, string(sum) != e.sum)
			return nil
		}
	})
	s.Totals.Failed += int64(l.unreadable)
	if l.in.Err() == nil && s.Ctx.Err() == nil && !l.summarize() {
		s.Found.Store(false) // so that the exit code is 1, as sha256sum's
	}
	return l.in.Err()
}

// belowHere returns a listed name as a path of fileproc.Options.Files below the working directory, or "".
func belowHere(name string) string {
	if dir, rel := run.SplitName(name); dir == "" && !strings.HasSuffix(rel, "/") {
		return rel
	}
	return ""
}

// fromCache puts the checksums of files below the working directory into known, by path, with --cache. What it cannot read,
// such as a file behind a symbolic link, is left for checkList.
func (s *sums) fromCache(entries []listEntry, known map[string][]byte) {
	s.Opts.OnError = func(error) error { return nil }
	s.Opts.Files = func(yield func(string) bool) {
		for _, e := range entries {
			if rel := belowHere(e.name); rel != "" && !yield(rel) {
				return
			}
		}
	}
	err := s.Each(run.Job{Read: s.read, Version: "hash " + s.algorithm, Print: func(path string, sum []byte, _ *output.Chunk) error {
		known[filepath.ToSlash(path)] = bytes.Clone(sum)
		return nil
	}})
	if err != nil {
		s.Fail(errors.New(run.AsFlags(err)))
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
	case err != nil && l.ignoreMissing && errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		l.unreadable++
		l.Out.Warn(run.Describe(err))
		what = "FAILED open or read"
	case differs:
		l.different++
		what = "FAILED"
	default:
		l.same++
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
	warn := func(n int, oneOrMany ...string) {
		if n > 0 && !l.status {
			l.Out.Warn(fmt.Sprintf("WARNING: %d %s", n, oneOrMany[min(n, 2)-1]))
		}
	}
	warn(l.malformed, "line is improperly formatted", "lines are improperly formatted")
	warn(l.unreadable, "listed file could not be read", "listed files could not be read")
	warn(l.different, "computed checksum did NOT match", "computed checksums did NOT match")
	if l.same+l.different+l.unreadable == 0 && l.ignoreMissing {
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
	e = listEntry{sum: strings.ToLower(m[3] + m[4]), name: m[2] + m[5]}
	if m[1] != "" {
		e.name = unescaper.Replace(e.name)
	}
	return e, !strings.Contains(e.name, "\x00")
}
