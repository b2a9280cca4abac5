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
	"strings"
)

// A checker is hash --check.
type checker struct {
	app                                        *app
	newHash                                    func() hash.Hash
	tag                                        string // of the format "SHA256 (name) = sum"
	quiet, status, warn, strict, ignoreMissing bool
}

// A verdict is what became of one line.
type verdict struct {
	name    string
	err     error // the file could not be read
	differs bool
}

func (c *checker) check(lists []string) error {
	if len(lists) == 0 {
		lists = []string{stdinName}
	}
	ok := true
	for _, list := range lists {
		good, err := c.checkList(list)
		if err != nil {
			c.app.failures.add(err)
		}
		ok = ok && good
	}
	c.app.found.Store(ok) // exit code 1 says that a checksum differs, as sha256sum's
	return nil
}

// A tally counts the lines of one list.
type tally struct{ lines, verified, malformed, unreadable, different int }

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
	hashers := make([]hasher, c.app.sel.opts.Workers)
	inTurn(c.app, c.lines(in, label, &t, &err), func(l listed, worker int, _ <-chan struct{}) (tell func()) {
		h := &hashers[worker]
		if h.h == nil {
			h.h = c.newHash()
		}
		sum, err := h.of(&item{app: c.app, name: l.name, explicit: true, more: true, ctx: c.app.ctx})
		v := verdict{l.name, err, string(sum) != l.sum}
		return func() { c.tell(v, &t) }
	})
	r := &c.app.totals
	r.Found, r.Processed, r.Failed = r.Found+int64(t.verified+t.unreadable), r.Processed+int64(t.verified), r.Failed+int64(t.unreadable)
	if err != nil {
		return false, &fs.PathError{Op: opProcess, Path: label, Err: err}
	}
	return c.summarize(label, &t), nil
}

// lines yields what the lines of a list say. An error of the list is stored in failed.
func (c *checker) lines(list io.Reader, label string, t *tally, failed *error) iter.Seq[listed] {
	return func(yield func(listed) bool) {
		p := sumParser{tag: c.tag, digits: 2 * c.newHash().Size()}
		r := bufio.NewReader(list)
		for number := 1; ; number++ {
			line, err := r.ReadString('\n')
			if err != nil && err != io.EOF {
				*failed = err
				return
			} else if line == "" {
				return
			}
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			if strings.HasPrefix(line, "#") || line == "" {
				continue
			}
			l, ok := p.parse(line)
			if ok && !yield(l) {
				return
			} else if ok {
				continue
			}
			t.malformed++
			if c.warn {
				c.app.out.warn(fmt.Sprintf("%s: %d: improperly formatted %s checksum line", label, number, c.tag))
			}
		}
	}
}

// tell prints one line, as sha256sum does.
func (c *checker) tell(v verdict, t *tally) {
	if c.app.ctx.Err() != nil {
		return
	}
	t.lines++
	c.app.bar.add(1, 0)
	var what string
	switch {
	case v.err != nil && c.ignoreMissing && errors.Is(v.err, fs.ErrNotExist):
		return
	case v.err != nil:
		t.unreadable++
		c.app.out.warn(plainly(v.err))
		what = "FAILED open or read"
	case v.differs:
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
	name := v.name
	if strings.Contains(name, "\n") {
		name = `\` + escaper.Replace(name)
	}
	c.app.out.write([]byte(name + ": " + what + "\n"))
}

// summarize warns of what was wrong with a list, and reports whether all is well.
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

// A listed file is one line of a list.
type listed struct{ sum, name string }

// A sumParser reads the lines of one list as sha256sum does.
type sumParser struct {
	tag      string // of the format "SHA256 (name) = sum"
	digits   int    // of a checksum
	reversed int    // 1 if one blank alone stands before names, as with md5 -r, -1 if not: a list cannot mix them
}

func (p *sumParser) parse(line string) (l listed, ok bool) {
	const blanks = " \t"
	line, escaped := strings.CutPrefix(strings.TrimLeft(line, blanks), `\`)
	reversed := 0
	if rest, found := strings.CutPrefix(line, p.tag); found {
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
		if len(line) < p.digits+2 || !strings.ContainsRune(blanks, rune(line[p.digits])) {
			return l, false
		}
		l.sum, l.name = line[:p.digits], line[p.digits+1:]
		reversed = 1
		if len(l.name) > 1 && (l.name[0] == ' ' || l.name[0] == '*') && p.reversed != 1 {
			reversed, l.name = -1, l.name[1:]
		}
	}
	l.sum = strings.ToLower(l.sum)
	if _, err := hex.DecodeString(l.sum); err != nil || len(l.sum) != p.digits || p.reversed*reversed < 0 {
		return l, false
	}
	if reversed != 0 {
		p.reversed = reversed
	}
	if escaped {
		l.name = unescaper.Replace(l.name)
	}
	return l, !strings.Contains(l.name, "\x00")
}
