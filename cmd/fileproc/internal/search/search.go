package search

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
	"github.com/fileproc/fileproc/cmd/fileproc/internal/run"
)

const (
	// grepPrefix is how many bytes of a file are read at first: the buffer of the package's workers holds that many.
	// A longer file is opened again and read in parts of at least partSize, into a reused buffer.
	grepPrefix   = 32<<10 - 1
	partSize     = 256 << 10
	binaryPrefix = 64 << 10  // bytes of a file: a NUL byte among them makes it binary as a whole
	maxLine      = 256 << 20 // bytes of the longest line that is kept in memory
)

// byteOrderMark precedes UTF-8 that some editors write. It is not part of a line, and offsets do not count it.
var byteOrderMark = []byte("\ufeff")

// A searcher searches one file at a time.
type searcher struct {
	*grep
	out  *output.Chunk
	find lineFinder
	buf  []byte // for files that are read in parts
	path string // of the file; set from the first selected line on
	// The current file.
	explicit bool   // named as an argument
	base     int64  // offset of data in the file
	data     []byte // the part being searched
	begin    int    // of the line being printed
	lines    int64  // number of newlines before counted
	counted  int
	selected int64 // lines so far
	shown    int64 // offset in the file of the end of the last printed line
	pending  int   // context lines still to be printed
	nul      int64 // offset in the file of the first NUL byte, negative if there is none
}

func (s *searcher) search(it *run.Item, c *output.Chunk) error {
	*s = searcher{grep: s.grep, find: lineFinder{next: s.find.next}, buf: s.buf, out: c, explicit: it.IsArgument(), nul: -1}
	var err error
	if it.More {
		err = s.stream(it)
	} else {
		data, _ := s.untilNUL(it.Data, 0)
		s.searchPart(it, data, 0)
	}
	text := s.nul < 0 || s.explicit
	switch {
	case s.listWithout && s.selected == 0 && err == nil && text:
		s.setPath(it.Path())
		s.printPath('\n')
	case s.listWithout || s.selected == 0:
		return err
	case s.quiet:
		err = run.ErrEnough
	case s.list:
		s.printPath('\n')
	case s.count && text:
		if s.withName {
			s.printPath(':')
		}
		s.out.B = append(strconv.AppendInt(s.out.B, s.selected, 10), '\n')
	case s.count:
	case s.json:
		s.printJSONEdge("end")
	case s.nul >= 0:
		if s.withName {
			s.out.B = append(s.out.B, s.path+": "...)
		}
		what := "WARNING: stopped searching binary file after match" // in rg's words
		if s.explicit {
			what = "binary file matches"
		}
		s.out.B = fmt.Appendf(s.out.B, "%s (found \"\\0\" byte around offset %d)\n", what, s.nul)
	}
	s.Found.Store(true)
	return err
}

// untilNUL looks for a NUL byte in data[from:] and returns the lines of data to search. cut reports that the NUL byte ends them.
func (s *searcher) untilNUL(data []byte, from int) (lines []byte, cut bool) {
	if s.nul < 0 && !s.text {
		if i := bytes.IndexByte(data[from:], 0); i >= 0 {
			s.nul = s.base + int64(from+i)
		}
	}
	switch {
	case s.nul < 0 || s.explicit:
		return data, false
	case s.nul < binaryPrefix:
		return nil, true
	}
	return data[:bytes.LastIndexByte(data[:s.nul-s.base], '\n')+1], true
}

// stream searches a file in parts. A part is whole lines, preceded by the lines that may be printed as context.
func (s *searcher) stream(it *run.Item) error {
	r := it.Reader()
	if s.buf == nil {
		s.buf = make([]byte, partSize)
	}
	n, from := 0, 0 // bytes in buf, and the offset up to which they have been searched
	for {
		if n == len(s.buf) {
			if n >= maxLine {
				return &fs.PathError{Op: "search", Path: it.Path(), Err: errors.New("a line is longer than 256 MiB")}
			}
			s.buf = append(make([]byte, 0, 2*n), s.buf...)[:2*n]
		}
		k, err := r.Read(s.buf[n:])
		last := err == io.EOF
		if err != nil && !last {
			return err
		}
		lines, cut := s.untilNUL(s.buf[:n+k], n)
		last = last || cut
		end := len(lines)
		if !last {
			end = n + bytes.LastIndexByte(lines[n:], '\n') + 1
		}
		n += k
		if !last && (end == n-k || it.F != nil && s.base+int64(n) < binaryPrefix) { // a NUL byte that follows may leave out the file
			continue
		}
		if s.searchPart(it, s.buf[:end], from) || last {
			return nil
		}
		keep := s.contextBefore(end)
		s.countNewlines(keep)
		s.base += int64(keep)
		s.counted -= keep
		n = copy(s.buf, s.buf[keep:n])
		from = end - keep
	}
}

// contextBefore returns where the context before a line at end begins.
func (s *searcher) contextBefore(end int) int {
	for n := s.before; n > 0 && end > 0; n-- {
		end = bytes.LastIndexByte(s.data[:end-1], '\n') + 1
	}
	return end
}

// searchPart searches the lines of data that begin at or after from. It reports whether the file need not be searched further.
func (s *searcher) searchPart(it *run.Item, data []byte, from int) (done bool) {
	if s.base == 0 && from == 0 && bytes.HasPrefix(data, byteOrderMark) {
		from = len(byteOrderMark)
		s.base -= int64(from)
		s.nul -= int64(from) // stays negative if there is none
	}
	s.data = data
	s.find.reset(s.m, data)
	for pos := from; pos < len(data); {
		begin, end := s.find.find(pos)
		for s.invert && pos < begin {
			end := lineEnd(data, pos)
			if s.handleLine(it, pos, end) {
				return true
			}
			pos = end + 1
		}
		if !s.invert && begin < len(data) && s.handleLine(it, begin, end) {
			return true
		}
		pos = end + 1
	}
	s.contextAfter(len(data))
	return false
}

// handleLine counts or prints a selected line. It reports whether the file need not be searched further.
func (s *searcher) handleLine(it *run.Item, begin, end int) (done bool) {
	if s.selected++; s.selected == 1 {
		s.setPath(it.Path())
		if s.json {
			s.printJSONEdge("begin")
		}
	}
	switch {
	case s.list, s.listWithout, s.quiet:
		return true
	case s.count:
	case s.nul >= 0 && !s.json && (s.nul < binaryPrefix || s.base+int64(end) > s.nul):
		s.contextAfter(begin)
		return true
	default:
		if s.heading && s.selected == 1 && !s.json {
			s.printPath('\n')
		}
		s.show(begin, end)
	}
	if s.selected == s.maxCount {
		s.contextAfter(len(s.data))
		return true
	}
	return false
}

// show prints a selected line and the context before it.
func (s *searcher) show(begin, end int) {
	if s.before > 0 || s.after > 0 {
		s.contextAfter(begin)
		first := max(s.contextBefore(begin), int(max(s.shown-s.base, 0)))
		if s.shown > 0 && s.base+int64(first) > s.shown && !s.json {
			s.out.B = append(s.out.B, "--\n"...)
		}
		s.printContext(s.before, first, begin)
		s.pending = s.after
	}
	s.begin = begin
	s.printLine(s.data[begin:min(end+1, len(s.data))], true)
	s.shown = s.base + int64(min(end+1, len(s.data)))
}

// contextAfter prints the pending lines of context after the last printed line, up to limit or a NUL byte.
func (s *searcher) contextAfter(limit int) {
	if nul := s.nul - s.base; s.nul >= 0 && nul < int64(limit) && !s.json {
		limit = bytes.LastIndexByte(s.data[:max(nul, 0)], '\n') + 1
	}
	s.pending = s.printContext(s.pending, int(s.shown-s.base), limit)
}

// printContext prints at most n lines from begin to end. It returns how many fewer it has printed.
func (s *searcher) printContext(n, begin, end int) int {
	for ; n > 0 && begin < end; n-- {
		s.begin = begin
		begin = min(lineEnd(s.data, begin)+1, end)
		s.printLine(s.data[s.begin:begin], false)
		s.shown = s.base + int64(begin)
	}
	return n
}

func (s *searcher) countNewlines(pos int) {
	if s.counted < pos && (s.number || s.json) {
		s.lines += int64(bytes.Count(s.data[s.counted:pos], []byte("\n")))
		s.counted = pos
	}
}

func (s *searcher) lineNumber() int64 {
	s.countNewlines(s.begin)
	return s.lines + 1
}
