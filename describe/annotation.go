package describe

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// annotationLabels holds the labels of annotations, by kind.
var annotationLabels = [...]string{
	engine.KindDeploy: "Deployed",
	engine.KindFlag:   "Flag",
	engine.KindChange: "Change",
	engine.KindOther:  "Event",
}

// Annotation describes an annotation in the history of an incident.
func Annotation(n *Names, x *engine.Annotation) Sentence {
	if x.Source == engine.SourceDetected {
		return Say("%s %s appeared; the version before is %s.",
			n.text(x.Service).quiet(), n.text(x.Version).quiet(), n.text(x.Before).quiet())
	}
	return Say(annotationLabels[x.Kind]+": %s", Phrase{Text: n.Clean(AnnotationTitle(n.Table.Text, x))})
}

// AnnotationTitle returns the title of an annotation, without its kind: "cart 1.8.2, before 1.8.1", "cart: new-checkout
// on". It doesn't clean the names that the function text returns.
func AnnotationTitle(text func(trace.Symbol) string, x *engine.Annotation) string {
	title := text(x.Service)
	if x.Version != 0 {
		if title != "" {
			title += " "
		}
		title += text(x.Version)
	}
	if x.Before != 0 {
		title += ", before " + text(x.Before)
	}
	if title != "" && x.Text != "" {
		title += ": "
	}
	return title + x.Text
}
