package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
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
	in, label := io.Reader(os.Stdin), "'standard input'"
	if list != stdinName {
		f, err := os.Open(list)
		if err != nil {
			return false, err
		}
		defer f.Close()
		in, label = f, list
	}
	var t tally
	// The files are checked out of order, and told in the order of the list.
	pending := make(chan chan verdict, 4*c.app.sel.opts.Workers)
	told := make(chan struct{})
	go func() {
		for v := range pending {
			c.tell(<-v, &t)
		}
		close(told)
	}()
	err = c.start(in, label, &t, pending)
	close(pending)
	<-told
	if err != nil {
		return false, fmt.Errorf("%s: %w", label, err)
	}
	return c.summarize(label, &t), nil
}

// start reads the list and starts the check of each of its files.
func (c *checker) start(in io.Reader, label string, t *tally, pending chan<- chan verdict) error {
	hashers := make(chan *hasher, c.app.sel.opts.Workers)
	for range cap(hashers) {
		hashers <- &hasher{h: c.newHash()}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	r := bufio.NewReader(in)
	malformed := 0
	defer func() { t.malformed = malformed }()
	for number := 1; c.app.ctx.Err() == nil; number++ {
		line, err := r.ReadString('\n')
		if line == "" && err == io.EOF {
			return nil
		} else if err != nil && err != io.EOF {
			return err
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if strings.HasPrefix(line, "#") || line == "" {
			continue
		}
		sum, name, ok := parseSum(line, c.tag, c.newHash().Size())
		if !ok {
			malformed++
			if c.warn {
				c.app.out.warn(fmt.Sprintf("%s: %d: improperly formatted %s checksum line", label, number, c.tag))
			}
			continue
		}
		h := <-hashers
		v := make(chan verdict, 1) // so that the hasher does not wait for its turn to be told
		pending <- v
		wg.Go(func() {
			v <- c.verify(h, name, sum)
			hashers <- h
		})
	}
	return nil
}

func (c *checker) verify(h *hasher, name, want string) verdict {
	got, err := h.of(&item{name: name, explicit: true, more: true, ctx: c.app.ctx})
	return verdict{name: name, err: err, differs: err == nil && string(got) != want}
}

// tell prints one line, as sha256sum does.
func (c *checker) tell(v verdict, t *tally) {
	if c.app.ctx.Err() != nil {
		return
	}
	t.lines++
	var what string
	switch {
	case v.err != nil && c.ignoreMissing && errors.Is(v.err, fs.ErrNotExist):
		return
	case v.err != nil:
		t.unreadable++
		c.app.out.warn(v.err.Error())
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
	var b []byte
	if strings.Contains(v.name, "\n") {
		b = appendEscaped(append(b, '\\'), []byte(v.name))
	} else {
		b = append(b, v.name...)
	}
	b = append(b, ": "...)
	b = append(b, what...)
	c.app.out.write(append(b, '\n'))
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

// parseSum reads a line as sha256sum writes it, of either of its formats; size is that of the checksum in bytes.
func parseSum(line, tag string, size int) (sum, name string, ok bool) {
	line, escaped := strings.CutPrefix(line, `\`)
	if rest, found := strings.CutPrefix(line, tag+" ("); found {
		i := strings.LastIndex(rest, ") = ")
		if i < 0 {
			return "", "", false
		}
		name, sum = rest[:i], rest[i+len(") = "):]
	} else {
		// Two characters stand between the checksum and the name: a space, and a space or, for binary mode, an asterisk.
		if len(line) < 2*size+3 || line[2*size] != ' ' || (line[2*size+1] != ' ' && line[2*size+1] != '*') {
			return "", "", false
		}
		sum, name = line[:2*size], line[2*size+2:]
	}
	sum = strings.ToLower(sum)
	if _, err := hex.DecodeString(sum); err != nil || len(sum) != 2*size {
		return "", "", false
	}
	if escaped {
		var err error
		if name, err = unescape(name); err != nil {
			return "", "", false
		}
	}
	return sum, name, name != ""
}
