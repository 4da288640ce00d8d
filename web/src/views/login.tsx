import { type FormEvent, useState } from "react";
import { ApiError, unwrap, client, storeToken, token } from "../api/client.ts";
import { useTitle } from "../components/basics.tsx";

// LogIn asks for a token and tries it.
export function LogIn({ enter }: { enter: () => void }) {
  useTitle("Log in");
  const [secret, setSecret] = useState("");
  const [stay, setStay] = useState(false);
  const [wrong, setWrong] = useState(
    token() ? "The token that was used is not known any more, was revoked, or has expired." : "",
  );
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!/^[\x21-\x7e]+$/.test(secret.trim()))
      return setWrong("This is no token: those have letters, digits and signs of ASCII only.");
    storeToken(secret.trim(), stay);
    try {
      await unwrap(client.GET("/status"));
      enter();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      storeToken("", false);
      setWrong(error.status === 401 ? "This token is not known, was revoked, or has expired." : error.detail);
    }
  };
  return (
    <main className="login">
      <form onSubmit={submit}>
        <h1>Sibyl</h1>
        <p>
          This service wants a token. Whoever runs it makes one with{" "}
          <code>sibyl token create --role viewer --name you</code>.
        </p>
        <label>
          Token
          <input
            type="password"
            autoComplete="current-password"
            required
            autoFocus
            value={secret}
            onChange={(e) => setSecret(e.target.value)}
          />
        </label>
        <label className="check">
          <input type="checkbox" checked={stay} onChange={(e) => setStay(e.target.checked)} /> Keep it in this browser,
          not only this tab
        </label>
        {wrong && (
          <p className="bad" role="alert">
            {wrong}
          </p>
        )}
        <button type="submit" className="primary">
          Log in
        </button>
      </form>
    </main>
  );
}
