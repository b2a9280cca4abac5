package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/scanner"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"unsafe"

	"github.com/fileproc/fileproc"
	gversion "mvdan.cc/gofumpt/internal/version"
)

// A reporter holds the output of one file until its turn comes.
type reporter = bytes.Buffer

// readFile returns what has been read already.
func readFile(_ string, _ fs.FileInfo, in io.Reader) ([]byte, error) {
	return in.(*bytes.Buffer).Bytes(), nil
}

var formatted sync.Map // the files that are being formatted, by the addresses of their contents

// writeFile gives the file that orig is the content of the content src.
func writeFile(_ string, orig, src []byte, _ fs.FileMode, _ int64) error {
	f, _ := formatted.Load(unsafe.SliceData(orig))
	return f.(*fileproc.File).Replace(src)
}

func main() { os.Exit(run()) }

func run() (code int) {
	flag.Usage = usage
	flag.Parse()
	if *simplifyAST {
		fmt.Fprintln(os.Stderr, "warning: -s is deprecated as it is always enabled")
	}
	if *rewriteRule != "" {
		fmt.Fprintln(os.Stderr, `the rewrite flag is no longer available; use "gofmt -r" instead`)
		return 2
	}
	if *showVersion {
		fmt.Println(gversion.String(version))
		return 0
	}
	if *cpuprofile != "" {
		f, err := os.Create(*cpuprofile)
		if err != nil {
			return fail(fmt.Errorf("creating cpu profile: %s", err))
		}
		defer f.Close()
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	initParserMode()
	outputs := formatTrees(flag.Args())
	if flag.NArg() == 0 {
		outputs = formatInput
	}
	for output, err := range outputs {
		if _, err := os.Stdout.Write(output); err != nil {
			code = fail(err)
		}
		if err != nil {
			code = fail(err)
		}
	}
	return code
}

// formatTrees yields the outputs of the files among args, and below the others, in their order.
func formatTrees(args []string) iter.Seq2[[]byte, error] {
	for i, arg := range args {
		args[i] = filepath.Clean(arg)
	}
	named := func(f *fileproc.File) bool { return f.Path() == f.Root() }
	opts := fileproc.Options{
		Roots: args, Suffixes: []string{".go"}, Ordered: true, Stat: true, MaxFileSize: fileproc.NoLimit,
		Symlinks: fileproc.SymlinksFiles, SymlinksOutside: true,
		Select:    func(f *fileproc.File) bool { return named(f) || isGoFilename(f.Name()) },
		SelectDir: func(e fileproc.Entry) bool { return !shouldIgnore(e.Path()) },
	}
	return fileproc.Stream(context.Background(), ".", opts, func(f *fileproc.File) ([]byte, error) {
		info, _ := f.Info() // opts.Stat is set, so this cannot fail
		formatted.Store(unsafe.SliceData(f.Data()), f)
		defer formatted.Delete(unsafe.SliceData(f.Data()))
		var r reporter
		err := processFile(f.Path(), info, bytes.NewBuffer(f.Data()), &r, named(f))
		return r.Bytes(), fileproc.WithResult(err)
	})
}

func formatInput(yield func([]byte, error) bool) {
	src, err := []byte(nil), errors.New("error: cannot use -w with standard input")
	if !*write {
		src, err = io.ReadAll(os.Stdin)
	}
	var r reporter
	if err == nil {
		err = processFile("<standard input>", nil, bytes.NewBuffer(src), &r, true)
	}
	yield(r.Bytes(), err)
}

// fail prints err and returns the exit status that it means.
func fail(err error) int {
	if failure, ok := errors.AsType[*fileproc.Failure](err); ok && failure.Kind == fileproc.FailedFunc {
		err = failure.Err
	}
	if err == errFormattingDiffers {
		return 1
	}
	scanner.PrintError(os.Stderr, err)
	return 2
}
