package fileproc

// A queue says what the workers of a pool begin next.
type queue interface {
	// take returns the next batch to visit or directory to list, or neither if
	// none may be begun now. At this moment listed directories are partly listed,
	// and maxListings may be.
	take(listed, maxListings int) (*batch, *node)
	// add takes what a scan of n has found, but for the batch.
	add(n *node, r scanResult)
	// pending returns how many times take would succeed, or a lower number, which is
	// 0 only if take would not.
	pending(listed, maxListings int) int
	// isFull reports whether to take a batch before a partly listed directory.
	isFull() bool
	// isEmpty reports whether all has been begun.
	isEmpty() bool
	// abandon takes the files that have not been begun and returns how many they are.
	abandon() int64
}
