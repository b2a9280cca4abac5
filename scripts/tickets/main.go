// Command tickets makes a set of ticket files for demos and benchmarks.
//
//	go run ./tickets -layout flat -count 5k -out ../.data
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tickets:", err)
		os.Exit(1)
	}
}

func run() error {
	layout := flag.String("layout", "flat", "`layout`: flat, nested1 (2023-01/) or nested3 (2023/01/15/)")
	count := flag.String("count", "5k", "`number` of files, such as 5k or 1m")
	out := flag.String("out", ".data", "`directory` for the set and its manifest")
	seed := flag.Uint64("seed", 1, "`seed` of the random content")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	set, err := tickets.ParseSet(*layout, *count, *seed)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	start := time.Now()
	var progress func(files int)
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&fs.ModeCharDevice != 0 {
		var done atomic.Int64
		progress = func(files int) {
			fmt.Fprintf(os.Stderr, "\r%s: %d of %d files", set.Name(), done.Add(int64(files)), set.Count)
		}
	}
	m, err := set.Generate(ctx, *out, progress)
	if progress != nil {
		fmt.Fprintln(os.Stderr)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; run the same command again to continue")
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d files, %d bytes, sha256 %.12s, %.1fs\n",
		filepath.Join(*out, set.Name()), m.Count, m.Bytes, m.SHA256, time.Since(start).Seconds())
	return nil
}
