// Command tickets makes a set of ticket files for demos and benchmarks.
//
//	go run ./tickets -layout flat -count 5k -out ../.data
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/tickets"
)

func main() {
	log.SetFlags(0)
	layout := flag.String("layout", "flat", "`layout`: flat, nested1 (2023-01/) or nested3 (2023/01/15/)")
	count := flag.String("count", "5k", "`number` of files, such as 5k or 1m")
	out := flag.String("out", ".data", "`directory` for the set and its manifest")
	seed := flag.Uint64("seed", 1, "`seed` of the random content")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("tickets: unexpected argument %q", flag.Arg(0))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fail.Try(func() {
		set := fail.Must(tickets.ParseSet(*layout, *count, *seed))
		m := fail.Must(set.Generate(ctx, *out))
		fmt.Printf("%s: %d files, %d bytes\n", filepath.Join(*out, set.Name()), m.Count, m.Bytes)
	}); err != nil {
		log.Fatalf("tickets: %v (after an interrupt, the same command continues)", err)
	}
}
