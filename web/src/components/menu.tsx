import * as Dropdown from "@radix-ui/react-dropdown-menu";
import { useState } from "react";

export type Item = { text: string; act: () => void; checked?: boolean };

type Props = { label: string; icon: string; items: (Item | null)[]; className?: string };

// Menu is a button that opens a list of actions. The list is rendered into main, which may not exist before the menu
// opens.
export function Menu({ label, icon, items, className = icon.length > 1 ? "" : "quiet" }: Props) {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown.Root modal={false} open={open} onOpenChange={setOpen}>
      <Dropdown.Trigger className={className} aria-label={label} title={label}>
        {icon}
      </Dropdown.Trigger>
      <Dropdown.Portal container={document.querySelector("main")}>
        <Dropdown.Content className="menu" align="end" sideOffset={4} collisionPadding={8}>
          {items.map((item, i) => (item ? <MenuItem key={item.text} {...item} /> : <Separator key={i} />))}
        </Dropdown.Content>
      </Dropdown.Portal>
    </Dropdown.Root>
  );
}

const Separator = () => <Dropdown.Separator className="menu-line" />;

function MenuItem({ text, act, checked }: Item) {
  if (checked === undefined) return <Dropdown.Item onSelect={act}>{text}</Dropdown.Item>;
  return (
    <Dropdown.CheckboxItem checked={checked} onSelect={act}>
      <span aria-hidden="true">{checked ? "✓" : ""}</span> {text}
    </Dropdown.CheckboxItem>
  );
}
