import { Component, type ReactNode } from "react";

type Props = { children: ReactNode };
type State = { why: string | null };

// Boundary shows why a view could not be drawn, in its place. Mostly that is its script, which a stopped service does not send and one of
// another version does not have.
export class ErrorBoundary extends Component<Props, State> {
  override state: State = { why: null };

  static getDerivedStateFromError(error: unknown): State {
    return { why: error instanceof Error ? error.message : String(error) };
  }

  override render() {
    if (this.state.why === null) return this.props.children;
    return (
      <div className="state bad" role="alert">
        <h1>This page could not be shown</h1>
        <p>The service may have stopped, or be of another version than the page. ({this.state.why})</p>
        <button type="button" onClick={() => location.reload()}>
          Load it again
        </button>
      </div>
    );
  }
}
