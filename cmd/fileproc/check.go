package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A checker is hash --check.
type checker struct {
	app                                        *app
	newHash                                    func() hash.Hash
	tag                                        string // of the format "SHA256 (name) = sum"
	quiet, status, warn, strict, ignoreMissing bool
}

func (c *checker) check(lists []string) error {
	if len(lists) == 0 {
		lists = []string{stdinName}
	}
	ok := true
	for _, list := range lists {
		good, err := c.checkList(list)
		if err != nil {
			c.app.fail(err)
		}
		ok = ok && good
	}
	c.app.found.Store(ok) // if not ok, the exit code is 1, as sha256sum's
	return nil
}

// A tally counts the lines of one list.
type tally struct{ lines, verified, cached, malformed, unreadable, different int }

func (c *checker) checkList(list string) (ok bool, err error) {
	in, label := os.Stdin, "'standard input'"
	if list != stdinName {
		if in, err = os.Open(list); err != nil {
			return false, err
		}
		defer in.Close()
		label = list
	}
	var t tally
	r := sumReader{checker: c, r: bufio.NewReader(in), label: label, digits: 2 * c.newHash().Size()}
	hashers := make([]hasher, c.app.sel.opts.Workers)
	entries, known := iter.Seq[listEntry](r.each), map[string]string{}
	if c.app.sel.cache != "" {
		all := slices.Collect(entries)
		entries = slices.Values(all)
		c.fromCache(all, hashers, known)
	}
	inTurn(c.app, entries, func(l listEntry, worker int, _ func()) (emit func()) {
		if sum, ok := known[belowHere(l.name)]; ok {
			return func() {
				t.cached++
				c.printResult(l.name, nil, sum != l.sum, &t)
			}
		}
		sum, err := hashers[worker].checksum(&item{app: c.app, name: l.name, more: true}, c.newHash)
		differs := string(sum) != l.sum // compared here, because the worker's next file overwrites sum
		return func() { c.printResult(l.name, err, differs, &t) }
	})
	t.malformed = r.malformed
	total := &c.app.totals
	total.Found += int64(t.verified + t.unreadable - t.cached)
	total.Processed += int64(t.verified - t.cached)
	total.Failed += int64(t.unreadable)
	if r.err != nil {
		return false, &fs.PathError{Op: opProcess, Path: label, Err: r.err}
	}
	return c.summarize(label, &t), nil
}

// belowHere returns a listed name as a path of fileproc.Options.Files below the working directory, or "".
func belowHere(name string) string {
	if dir, rel := splitName(name); dir == "." && !strings.HasSuffix(rel, "/") {
		return rel
	}
	return ""
}

// fromCache puts the checksums of files below the working directory into known, by path, with --cache. What it cannot read,
// such as a file behind a symbolic link, is left for checkList.
func (c *checker) fromCache(entries []listEntry, hashers []hasher, known map[string]string) {
	var missed int64
	opts := c.app.sel.opts
	opts.ReadSize, opts.OnError = hashPrefix, func(error) error {
		missed++
		return nil
	}
	opts.Files = func(yield func(string) bool) {
		for _, l := range entries {
			if rel := belowHere(l.name); rel != "" && !yield(rel) {
				return
			}
		}
	}
	read := func(it *item) ([]byte, error) { return hashers[it.worker].checksum(it, c.newHash) }
	print := func(path string, sum []byte, _ *chunk) error {
		known[filepath.ToSlash(path)] = string(sum)
		return nil
	}
	err := c.app.eachCached(&job{opts: opts, read: read, print: print, version: "hash " + strings.ToLower(c.tag)})
	c.app.totals.Found -= missed
	c.app.totals.Failed -= missed
	if err != nil && c.app.ctx.Err() == nil {
		c.app.fail(err)
	}
}

// printResult prints the result of one file, as sha256sum does. err says that the file could not be read.
func (c *checker) printResult(name string, err error, differs bool, t *tally) {
	if c.app.ctx.Err() != nil {
		return
	}
	t.lines++
	c.app.bar.add(1, 0)
	var what string
	switch {
	case err != nil && c.ignoreMissing && errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		t.unreadable++
		c.app.out.warn(describe(err))
		what = "FAILED open or read"
	case differs:
		t.verified++
		t.different++
		what = "FAILED"
	default:
		t.verified++
		if c.quiet {
			return
		}
		what = "OK"
	}
	if c.status {
		return
	}
	if strings.Contains(name, "\n") {
		name = `\` + escaper.Replace(name)
	}
	c.app.out.Write([]byte(c.app.out.shown(name) + ": " + what + "\n"))
}

// summarize warns of the problems of a list, and reports whether there were none that count.
func (c *checker) summarize(label string, t *tally) bool {
	if c.app.ctx.Err() != nil {
		return false
	}
	warn := func(n int, one, many string) {
		switch {
		case n == 0 || c.status:
		case n == 1:
			c.app.out.warn("WARNING: 1 " + one)
		default:
			c.app.out.warn(fmt.Sprintf("WARNING: %d %s", n, many))
		}
	}
	if t.lines == 0 {
		c.app.out.warn(label + ": no properly formatted checksum lines found")
		return false
	}
	warn(t.malformed, "line is improperly formatted", "lines are improperly formatted")
	warn(t.unreadable, "listed file could not be read", "listed files could not be read")
	warn(t.different, "computed checksum did NOT match", "computed checksums did NOT match")
	if t.verified == 0 && c.ignoreMissing && t.unreadable == 0 {
		c.app.out.warn(label + ": no file was verified")
		return false
	}
	return t.unreadable == 0 && t.different == 0 && !(c.strict && t.malformed > 0)
}

// A listEntry is one line of a list.
type listEntry struct{ sum, name string }

// A sumReader reads a list as sha256sum does.
type sumReader struct {
	*checker
	r         *bufio.Reader
	label     string
	digits    int // of a checksum
	malformed int // lines
	reversed  int // 1 if a single blank precedes names, as md5 -r prints them, and -1 if not: a list cannot mix the two
	err       error
}

func (r *sumReader) each(yield func(listEntry) bool) {
	for number := 1; ; number++ {
		line, err := r.r.ReadString('\n')
		if err != nil && err != io.EOF {
			r.err = err
			return
		}
		if line == "" {
			return
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		if l, ok := r.parse(line); !ok {
			r.malformed++
			if r.warn {
				r.app.out.warn(fmt.Sprintf("%s: %d: improperly formatted %s checksum line", r.label, number, r.tag))
			}
		} else if !yield(l) {
			return
		}
	}
}

func (r *sumReader) parse(line string) (l listEntry, ok bool) {
	const blanks = " \t"
	line, escaped := strings.CutPrefix(strings.TrimLeft(line, blanks), `\`)
	reversed := 0
	if rest, found := strings.CutPrefix(line, r.tag); found {
		rest, found = strings.CutPrefix(strings.TrimPrefix(rest, " "), "(")
		i := strings.LastIndexByte(rest, ')')
		if !found || i < 0 {
			return l, false
		}
		l.name = rest[:i]
		if l.sum, found = strings.CutPrefix(strings.TrimLeft(rest[i+1:], blanks), "="); !found {
			return l, false
		}
		l.sum = strings.TrimLeft(l.sum, blanks)
	} else {
		if len(line) < r.digits+2 || !strings.ContainsRune(blanks, rune(line[r.digits])) {
			return l, false
		}
		l.sum, l.name = line[:r.digits], line[r.digits+1:]
		reversed = 1
		if len(l.name) > 1 && (l.name[0] == ' ' || l.name[0] == '*') && r.reversed != 1 {
			reversed, l.name = -1, l.name[1:]
		}
	}
	l.sum = strings.ToLower(l.sum)
	if _, err := hex.DecodeString(l.sum); err != nil || len(l.sum) != r.digits || r.reversed*reversed < 0 {
		return l, false
	}
	if reversed != 0 {
		r.reversed = reversed
	}
	if escaped {
		l.name = unescaper.Replace(l.name)
	}
	return l, !strings.Contains(l.name, "\x00")
}
