// Package net names the Go clients whose own tests tests/net/test_other_projects.py runs.
package net

import _ "github.com/twmb/franz-go/pkg/kgo"
