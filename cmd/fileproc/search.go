package main

import (
	"bytes"
	"errors"
	"io"
)

const (
	// grepPrefix is how many bytes of a file are read at first: what fits the buffer that every worker of the package has.
	// A longer file is opened again and read in parts of at least partSize, into memory that is used again.
	grepPrefix = 32<<10 - 1
	partSize   = 256 << 10
	// binaryPrefix is where a file that has a NUL byte is binary as a whole, in bytes.
	binaryPrefix = 64 << 10
	// maxLine is the length in bytes of the longest line that is kept in memory.
	maxLine = 256 << 20
)

// byteOrderMark is what some editors put before UTF-8. It belongs to no line.
var byteOrderMark = []byte("\ufeff")

var errLongLine = errors.New("a line is longer than 256 MiB")

// A searcher searches one file at a time for one worker.
type searcher struct {
	grep *grep
	out  *chunk
	find lineFinder

	buf   []byte   // for files that are read in parts
	path  []byte   // of the file; set from the first selected line on
	found [][2]int // matches of a line

	// Of the file at hand. Offsets in the buffer become offsets in the file with base.
	explicit bool
	base     int64
	data     []byte
	begin    int   // of the line that is printed
	lines    int64 // number of newlines before counted
	counted  int
	selected int64 // lines so far
	shown    int64 // offset in the file behind the last line that was printed
	after    int   // how many lines are still to be printed as context
	checked  int   // how far there is no NUL byte
	nul      int64 // offset in the file of the first NUL byte, or -1
	skipped  bool  // binary as a whole
}

// search searches a file and prints what is asked for.
func (s *searcher) search(it *item, c *chunk) error {
	*s = searcher{grep: s.grep, find: lineFinder{dfa: s.find.dfa}, buf: s.buf, path: s.path[:0], found: s.found, out: c, explicit: it.explicit, nul: -1}
	var err error
	if it.more {
		err = s.stream(it)
	} else {
		s.part(it, it.data, 0)
	}
	if s.selected > 0 || s.nul >= 0 {
		s.rest()
	}
	g := s.grep
	switch {
	case s.skipped || err != nil && s.selected == 0:
		return err
	case g.listWithout:
		if s.selected == 0 {
			g.app.found.Store(true)
			s.path = it.appendPath(s.path[:0])
			s.printPath()
		}
		return err
	case s.selected == 0:
		return err
	}
	g.app.found.Store(true)
	switch {
	case g.quiet:
		return errEnough
	case g.list:
		s.printPath()
	case g.count:
		if s.nul < 0 || s.explicit {
			s.printCount()
		}
	case g.json:
		s.printJSONEdge("end")
	case s.nul >= 0:
		s.printBinary(s.nul)
	}
	return err
}

// rest looks for a NUL byte behind the last selected line.
func (s *searcher) rest() {
	if s.nul < 0 && !s.grep.text && !s.grep.list && !s.grep.quiet {
		s.check(len(s.data))
	}
}

// stream searches a file in parts. Each is whole lines, with as many before them as may be printed as context.
func (s *searcher) stream(it *item) error {
	r, err := it.open()
	if err != nil {
		return err
	}
	defer r.Close()
	if s.buf == nil {
		s.buf = make([]byte, partSize)
	}
	n, from := 0, 0 // bytes in buf, and where what is not searched yet begins
	for it.ctx.Err() == nil {
		if n == len(s.buf) {
			if n >= maxLine {
				return errLongLine
			}
			s.buf = append(s.buf, make([]byte, n)...)
		}
		k, err := r.Read(s.buf[n:])
		last := err == io.EOF
		if err != nil && !last {
			return err
		}
		end := n + k
		if !last {
			if i := bytes.LastIndexByte(s.buf[n:end], '\n'); i >= 0 {
				n, end = end, n+i+1
			} else {
				n = end
				continue
			}
		} else {
			n = end
		}
		if s.part(it, s.buf[:end], from) || last {
			return nil
		}
		keep := s.contextBefore(end)
		s.leave(keep)
		n = copy(s.buf, s.buf[keep:n])
		from = end - keep
	}
	return it.ctx.Err()
}

// contextBefore returns where the lines begin that may be printed as context before a line at end.
func (s *searcher) contextBefore(end int) int {
	if !s.grep.showsContext() {
		return end
	}
	for range s.grep.before {
		if end == 0 {
			break
		}
		end = bytes.LastIndexByte(s.data[:end-1], '\n') + 1
	}
	if s.base == 0 && end == 0 && bytes.HasPrefix(s.data, byteOrderMark) {
		end = len(byteOrderMark)
	}
	return end
}

// leave prepares for the buffer's first n bytes to be dropped.
func (s *searcher) leave(n int) {
	s.count(n)
	s.base += int64(n)
	s.counted -= n
	s.checked = max(s.checked-n, 0)
}

// part searches the lines of data that begin at from or behind it. It reports whether the rest of the file is of no
// interest.
func (s *searcher) part(it *item, data []byte, from int) (done bool) {
	if s.base == 0 && from == 0 && bytes.HasPrefix(data, byteOrderMark) {
		from = len(byteOrderMark)
	}
	s.data = data
	s.find.reset(s.grep.m, data)
	match := -1 // with invert: where the next matching line begins
	matchEnd := from - 1
	for pos := from; pos < len(data); {
		var begin, end int
		if s.grep.invert {
			if match < pos {
				var ok bool
				if match, matchEnd, ok = s.find.find(pos); !ok {
					match = len(data)
				}
			}
			if match == pos {
				pos = matchEnd + 1
				continue
			}
			begin, end = pos, lineEnd(data, pos)
		} else {
			var ok bool
			if begin, end, ok = s.find.find(pos); !ok {
				break
			}
		}
		if s.line(it, begin, end) {
			return true
		}
		pos = end + 1
	}
	s.contextAfter(len(data))
	return false
}

// check looks for a NUL byte before end and reports whether there is none.
func (s *searcher) check(end int) bool {
	if s.checked < end {
		if i := bytes.IndexByte(s.data[s.checked:end], 0); i >= 0 {
			s.nul = s.base + int64(s.checked+i)
			return false
		}
		s.checked = end
	}
	return true
}

// line takes a selected line. It reports whether the rest of the file is of no interest.
func (s *searcher) line(it *item, begin, end int) (done bool) {
	g := s.grep
	if s.nul < 0 && !g.text && !s.check(max(end, min(len(s.data), binaryPrefix))) {
		switch {
		case !s.explicit && s.selected == 0:
			s.skipped = true
			return true
		case !s.explicit:
			return true
		case !g.count && !g.list && !g.listWithout && !g.quiet && !g.json:
			s.begun(it)
			s.selected++
			return true
		}
	}
	if s.selected++; s.selected == 1 {
		s.begun(it)
	}
	switch {
	case g.list, g.listWithout, g.quiet:
		return true
	case !g.count:
		s.show(begin, end)
	}
	if s.selected == g.maxCount {
		s.contextAfter(len(s.data))
		return true
	}
	return false
}

// begun notes that a file has a selected line.
func (s *searcher) begun(it *item) {
	g := s.grep
	s.path = it.appendPath(s.path[:0])
	switch {
	case g.json:
		s.printJSONEdge("begin")
	case g.heading:
		s.printPath()
	}
}

// show prints a selected line and the context before it.
func (s *searcher) show(begin, end int) {
	g := s.grep
	if g.showsContext() {
		s.contextAfter(begin)
		first := max(s.contextBefore(begin), int(max(s.shown-s.base, 0)))
		if s.shown > 0 && s.base+int64(first) > s.shown && !g.json {
			s.out.b = append(s.out.b, "--\n"...)
		}
		s.context(first, begin)
		s.after = g.after
	}
	s.begin = begin
	s.printLine(s.data[begin:min(end+1, len(s.data))], true)
	s.shown = s.base + int64(min(end+1, len(s.data)))
}

// contextAfter prints what is due of the lines between the last one printed and limit.
func (s *searcher) contextAfter(limit int) {
	if s.after == 0 {
		return
	}
	begin := int(s.shown - s.base)
	end := begin
	for ; s.after > 0 && end < limit; s.after-- {
		end = min(lineEnd(s.data, end)+1, limit)
	}
	s.context(begin, end)
}

// context prints the lines from begin to end.
func (s *searcher) context(begin, end int) {
	for begin < end {
		s.begin = begin
		begin = min(lineEnd(s.data, begin)+1, end)
		s.printLine(s.data[s.begin:begin], false)
		s.shown = s.base + int64(begin)
	}
}

// count counts the newlines before pos.
func (s *searcher) count(pos int) {
	if s.counted < pos && (s.grep.number || s.grep.json) {
		s.lines += int64(bytes.Count(s.data[s.counted:pos], []byte("\n")))
		s.counted = pos
	}
}

// number returns the number of the line that is printed.
func (s *searcher) number() int64 {
	s.count(s.begin)
	return s.lines + 1
}
