package main

// A port replaces the walking part of a program that others wrote.
type port struct {
	name, ours      string // ours is the directory of our files; those in directories below it are for both sides
	module, version string
	dropped         []string // the declarations that our files replace: "f", or "T.m" for a method
	command         string   // the package that is built
	runs            []run
	notAsRoot       bool // some of its tests need a user whom permissions bind
}

// A run is a way to call the program, in a tree.
type run struct {
	args     string
	timed    bool
	unsorted bool // the original prints in no particular order: lines are compared sorted
	rewrites bool // changes files: it runs on copies of Go's source, which are compared
}

var ports = []port{{
	name: "gofumpt", ours: "_gofumpt", module: "mvdan.cc/gofumpt", version: "v0.12.0", command: ".",
	dropped: []string{
		"main", "gofmtMain", "readFile", "fileWeight",
		"sequencer", "newSequencer", "exclusive", "sequencer.Add", "sequencer.AddReport", "sequencer.GetExitCode",
		"reporter", "reporterState", "reporter.getState", "reporter.Warnf", "reporter.Write", "reporter.Report", "reporter.ExitCode",
		"writeFile", "backupFile",
	},
	runs: []run{{args: "-l .", timed: true}, {args: "-d ."}, {args: "-w .", rewrites: true}},
}, {
	name: "gitcha", ours: "_gitcha", module: "github.com/muesli/gitcha", version: "v0.3.0", command: "./find",
	dropped: []string{"findFiles", "FindFirstFile"},
	runs: []run{
		{args: ". *.md readme* *_test.go", timed: true},
		{args: "-git . *.md readme* *_test.go", timed: true},
		{args: "-except testdata . *.txt [a-d]*"},
	},
}, {
	name: "addlicense", ours: "_addlicense", module: "github.com/google/addlicense", version: "v1.1.1", command: ".", notAsRoot: true,
	dropped: []string{"main", "file", "walk", "fileHasLicense", "addLicense"},
	runs: []run{
		{args: "-check .", timed: true, unsorted: true},
		{args: "-check -v -ignore **/*.md -ignore cmd/** .", unsorted: true},
		{args: "-v -y 2026 .", unsorted: true, rewrites: true},
	},
}}
