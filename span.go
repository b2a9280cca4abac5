package fileproc

// A span is a part of the results in order: a directory, or up to spanSize files
// of one. A directory's own results, its name and its failures, come before
// those of the spans that it is expanded to.
type span struct {
	next               *span  // in order
	prevTodo, nextTodo *span  // see ordered.todo
	node               *node  // of a directory
	batch              *batch // of files
	files              int
	begun              bool // a worker has begun to list the directory
	expanded           bool // the directory has been listed, or is not to be

	results    any    // of type *[]result[T]
	delivered  int    // how many of the results
	done, sent uint64 // the files, by bit, that have been visited, and that have a result
}

// spanSize is how many files a span has at most, one for each bit of span.done.
const spanSize = 64

var _ [spanSize]struct{} = [64]struct{}{}

// weight is what a span counts for while it is begun and not delivered.
func (s *span) weight() int {
	if s.node != nil {
		return 1
	}
	return s.files
}

// A spanAt is a directory's span, and how many files of the scan come before it.
type spanAt struct {
	span  *span
	files int
}

// A position is where the results of a worker go, in order.
type position struct {
	span *span
	file int  // of the span, or -1: a result of the directory's own
	sent bool // the file has a result
}

// splitIntoSpans puts files and directories, in the order of names, into spans.
func splitIntoSpans(n *node, files *batch, dirs []spanAt) []*span {
	var all []*span
	taken := 0
	take := func(end int) {
		for taken < end {
			next := min(end, taken+spanSize)
			b := &batch{node: n, entries: files.entries[taken:next:next]}
			b.span = &span{batch: b, files: len(b.entries)}
			all = append(all, b.span)
			taken = next
		}
	}
	for _, d := range dirs {
		take(d.files)
		all = append(all, d.span)
	}
	if files != nil {
		take(len(files.entries))
	}
	return all
}
