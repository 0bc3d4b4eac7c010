// Package mistake holds the switch for mistakes that ports make.
//
// Each call of Made stands where a programmer makes this mistake. JOBWIRE_MISTAKE names the one that
// is made, and without it the implementation is right. go-sample.json and go-sample-basic.json
// in conformance/source-mutants say what each mistake breaks; `jobwire conform kills --source` makes
// one after the other, to see whether the suite notices.
package mistake

import "os"

var made = os.Getenv("JOBWIRE_MISTAKE")

// Made reports whether the implementation makes this mistake.
func Made(name string) bool { return made == name }
