package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/agents/jvm/classify"
)

const root = "../.."

func table(t *testing.T) []row {
	t.Helper()
	rows, err := readTable(filepath.Join(root, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The model equals the model trained from the table, and the table is in the format that we write.
func TestModelIsTrained(t *testing.T) {
	rows := table(t)
	for name, want := range map[string]string{weightsFile: naiveBayes(rows).String(), tableFile: formatTable(rows)} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("%s: go run ./bench/ownclasses -table rewrites the model:\n%s", name, d)
		}
	}
}

// The model meets its goals for applications that it has not seen, and the file of results has these figures.
func TestGoals(t *testing.T) {
	scores := crossValidate(table(t), band, ours)
	if s := summarize(scores, "debian"); s.apps < 50 || s.pooled < 0.97 || s.mean < 0.95 {
		t.Errorf("Debian's programs: %+v", s)
	}
	if s := summarize(scores, "maven"); s.apps < 5 || s.recall < 0.99 {
		t.Errorf("Spring Boot applications and wars: %+v", s)
	}
	got, err := os.ReadFile(filepath.Join(root, resultsFile))
	if err != nil {
		t.Fatal(err)
	}
	want, err := figures(root, table(t))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("%s: go run ./bench/ownclasses -table rewrites the figures:\n%s", resultsFile, d)
	}
}

// An application is left out when its own model is trained.
func TestCrossValidation(t *testing.T) {
	f := []classify.Feature{{Name: "place", Value: "elsewhere"}}
	rows := []row{
		{kind: "debian", app: "a", own: 9, foreign: 1, features: f},
		{kind: "debian", app: "b", own: 1, foreign: 9, features: f},
		{kind: "debian", app: "c", own: 1, foreign: 9, features: f},
	}
	seen := ""
	scores := crossValidate(rows, 1, func(rows []row) model {
		for _, r := range rows {
			seen += r.app
		}
		seen += " "
		return ours(rows)
	})
	if seen != "bc ac ab " || scores[0].accuracy() != 0.1 || scores[0].recall() != 0 {
		t.Errorf("%s, %+v", seen, scores)
	}
}

// Naive Bayes: the log-odds follow from the shares, with the same weight for each application.
func TestNaiveBayes(t *testing.T) {
	own := classify.Feature{Name: "place", Value: "main jar"}
	other := classify.Feature{Name: "place", Value: "elsewhere"}
	m := naiveBayes([]row{
		{app: "a", own: 3, foreign: 1, features: []classify.Feature{own}},
		{app: "a", own: 1, foreign: 3, features: []classify.Feature{other}},
		{app: "b", own: 300, foreign: 100, features: []classify.Feature{own}},
		{app: "b", own: 100, foreign: 300, features: []classify.Feature{other}},
	})
	if got := fmt.Sprintf("%.2f %.2f %.2f", m.Bias, m.Weights[own], m.Weights[other]); got != "0.00 1.10 -1.10" {
		t.Errorf("%s, want log 3", got)
	}
}

func TestApplications(t *testing.T) {
	all, err := parseApplications(applications)
	if err != nil || len(all) < 50 {
		t.Fatalf("%d applications, %v", len(all), err)
	}
	for _, text := range []string{"debian", "debian a b", "maven a:b:1", "maven a:b:1 (", "gradle a"} {
		if _, err := parseApplications(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	a := all[len(all)-1]
	if a.kind != "maven" || a.own == nil {
		t.Errorf("%+v", a)
	}
}

// The main class is the one that the script of the program starts, not the value of a property.
func TestMainClass(t *testing.T) {
	d := &classify.Deployment{Sources: []classify.Source{
		{Path: "/usr/share/java/shop.jar", MainClass: "com.shop.Other", Classes: []classify.Class{
			{Name: "com.shop.Main"}, {Name: "com.shop.Log"}, {Name: "com.shop.Other"},
		}},
	}}
	for text, want := range map[string]string{
		"exec java -Dlog=com.shop.Log com.shop.Main \"$@\"": "com.shop.Main",
		"exec java -jar /usr/share/java/shop.jar":           "com.shop.Other",
		"exec java com/shop/Log com.shop.Main":              "com.shop.Log",
		"exec python3":                                      "com.shop.Other",
	} {
		got := mainClass("shop", []script{{"usr/bin/aaa", "java com.shop.Log"}, {"usr/bin/shop", text}}[1:], d,
			map[string]bool{"/usr/share/java/shop.jar": true})
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	both := []script{{"usr/bin/aaa", "java com.shop.Log"}, {"usr/bin/shop", "java com.shop.Main"}}
	if got := mainClass("shop", both, d, nil); got != "com.shop.Main" {
		t.Errorf("the script of the program's name counts first, got %s", got)
	}
}
