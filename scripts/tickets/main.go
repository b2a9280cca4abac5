// Command tickets makes a set of ticket files for demos and benchmarks.
//
//	go run ./tickets -layout flat -count 5k -out ../.data
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func main() {
	layout := flag.String("layout", "flat", "`layout`: flat, nested1 (2023-01/) or nested3 (2023/01/15/)")
	count := flag.String("count", "5k", "`number` of files, such as 5k or 1m")
	out := flag.String("out", ".data", "`directory` for the set and its manifest")
	seed := flag.Uint64("seed", 1, "`seed` of the random content")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	start := time.Now()
	set, err := tickets.ParseSet(*layout, *count, *seed)
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	var m tickets.Manifest
	if err == nil {
		m, err = set.Generate(ctx, *out, nil)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted; run the same command again to continue")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tickets:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d files, %d bytes, sha256 %.12s, %.1fs\n",
		filepath.Join(*out, set.Name()), m.Count, m.Bytes, m.SHA256, time.Since(start).Seconds())
}
