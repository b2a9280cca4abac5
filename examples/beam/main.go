// Command beam writes the SHA-256 sums of the files below a directory, or in a bucket, in an Apache Beam pipeline.
//
//	beam -output sums DIR                                                            # Prism, in this process
//	beam -output sums -endpoint localhost:8073 -environment_type loopback DIR        # a runner with a job service
//
// Each line of the output is that of sha256sum, in no order. Files that fail are in a second file, sums.failures.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/local" // where textio writes
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/textio"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/register"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/runners/prism" // not x/beamx, which has every runner
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/fileprocbeam"
	// For buckets, import the driver: _ "gocloud.dev/blob/s3blob"
)

// A Sum is the result for a file.
type Sum struct {
	Path   string
	SHA256 [sha256.Size]byte
}

// sums is known to each worker, which runs this program too.
var sums = fileprocbeam.Register("sums", func(f *fileproc.File) (Sum, error) {
	if !utf8.ValidString(f.Path()) {
		return Sum{}, errors.New("the path is not UTF-8, as lines of textio must be")
	}
	return Sum{f.Path(), sha256.Sum256(f.Data())}, nil
})

var escape = strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`)

// line escapes a path as sha256sum does, with a backslash at the beginning.
func line(s Sum) string {
	if path := escape.Replace(s.Path); path != s.Path {
		return fmt.Sprintf("\\%x  %s", s.SHA256, path)
	}
	return fmt.Sprintf("%x  %s", s.SHA256, s.Path)
}

func lineOfFailure(f fileprocbeam.Failure) string { return fmt.Sprintf("%q", f.Error) }

func init() {
	register.Function1x1(line)
	register.Function1x1(lineOfFailure)
}

var output = flag.String("output", "", "`file` to write the sums to; its directory must be one of the workers'")

func main() {
	flag.Parse()
	beam.Init() // on a remote worker, this does not return
	if flag.NArg() != 1 || *output == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root string) error {
	p, s := beam.NewPipelineWithRoot()
	results, failures, err := sums.TryProcess(s, root, fileproc.Options{})
	if err != nil {
		return err
	}
	for _, name := range []string{*output, *output + ".failures"} { // a file without lines is not written
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	textio.Write(s, *output, beam.ParDo(s, line, results))
	textio.Write(s, *output+".failures", beam.ParDo(s, lineOfFailure, failures))
	_, err = prism.Execute(context.Background(), p) // on the job service of -endpoint, if that is set
	return err
}
