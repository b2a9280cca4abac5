//go:build linux

package floor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fileproc/fileproc"
)

// sweep compares the default with other numbers of workers.
func sweep(dir, workers string, prepared func(side) side) (list []comparison, err error) {
	with := func(n int) side {
		return prepared(timed(func() (int, int64, error) { return process(dir, fileproc.Options{Workers: n}) }))
	}
	for text := range strings.SplitSeq(workers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("-workers: %w", err)
		}
		list = append(list, comparison{"default / Workers " + text, with(0), with(n)})
	}
	return list, nil
}
