package fileproc

// A queue says what the workers of a pool begin next.
type queue interface {
	// take returns the next batch to visit or directory to list, or neither if
	// none may be begun now.
	take() (*batch, *node)
	// add takes what a scan of n has found.
	add(n *node, r scanResult)
	// pending returns how many times take would succeed, or a lower number, which is
	// 0 only if take would not.
	pending() int
	// isEmpty reports whether all has been begun.
	isEmpty() bool
	// abandon takes the files that have not been begun and returns how many they are.
	abandon() int64
}

// depthFirst gives the directory that was found last. The pool's mutex guards it.
type depthFirst struct{ dirs []*node }

var _ queue = (*depthFirst)(nil)

func (q *depthFirst) take() (*batch, *node) {
	k := len(q.dirs)
	if k == 0 {
		return nil, nil
	}
	n := q.dirs[k-1]
	q.dirs[k-1] = nil
	q.dirs = q.dirs[:k-1]
	return nil, n
}

func (q *depthFirst) add(n *node, r scanResult) {
	q.dirs = append(q.dirs, r.subs...)
	if r.state == scanAgain {
		q.dirs = append(q.dirs, n)
	}
}

func (q *depthFirst) pending() int { return len(q.dirs) }

func (q *depthFirst) isEmpty() bool { return len(q.dirs) == 0 }

func (q *depthFirst) abandon() int64 { return 0 }
