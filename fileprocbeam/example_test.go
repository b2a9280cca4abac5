package fileprocbeam_test

import (
	"bytes"
	"context"
	"flag"
	"log"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/testing/passert"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/fileprocbeam"
)

// titles is a variable of the package, so that each worker, which runs the same program, has it too.
var titles = fileprocbeam.Register("titles", func(f *fileproc.File) (string, error) {
	line, _, _ := bytes.Cut(f.Data(), []byte("\n"))
	return string(line), nil
})

// The first lines of all Markdown files on a mount that all workers have. A file that
// cannot be read fails the pipeline.
func Example() {
	flag.Parse()
	beam.Init()
	p, s := beam.NewPipelineWithRoot()
	results, failures := titles.Process(s, "/mnt/notes", fileproc.Options{Suffixes: []string{".md"}})
	textio.Write(s, "/mnt/out/titles", results)
	passert.Empty(s, failures)
	if _, err := prism.Execute(context.Background(), p); err != nil { // in this process, or on the runner of -endpoint
		log.Fatal(err)
	}
}
